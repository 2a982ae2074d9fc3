/* The schedule against a brute-force reading of the program it makes. */
