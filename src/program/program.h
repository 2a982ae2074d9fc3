/* The program: what the schedule makes and every machine runs. It is data, not code: op texts with their constants,
 * tables of tensors and operands, barriers, and instructions of fixed size. In memory it is exactly the .mono file,
 * mapped or built; docs/program.md describes it byte by byte from the tables below.
 *
 * All numbers are little-endian; every section begins at a multiple of 64 bytes. Names are offsets into the string
 * section, where they are NUL-terminated. */
#ifndef PROGRAM_PROGRAM_H
#define PROGRAM_PROGRAM_H

#include "base/base.h"
#include "program/instruction.h"

enum { PROGRAM_VERSION = 1, PROGRAM_ALIGNMENT = 64 };

_Static_assert(sizeof(program_instruction) == 188, "the file format fixes the instruction's size");

/* The sections: X(name, element type, what). */
#define PROGRAM_SECTIONS(X)                                                                                            \
    X(strings, char, "names and texts, NUL-terminated")                                                                \
    X(ops, program_op, "ops: a tile program's text and its constants")                                                 \
    X(constants, program_constant, "constants of ops")                                                                 \
    X(lives, program_live, "live values")                                                                              \
    X(tensors, program_tensor, "tensors and where their memory is")                                                    \
    X(operands, program_operand, "views of tensors, as instructions use them")                                         \
    X(barriers, program_barrier, "barriers and their arrivals per run")                                                \
    X(nodes, program_node, "nodes of the lowered graph: instruction ranges, for people")                               \
    X(instructions, program_instruction, "instructions; a barrier's arrivals have lower numbers than its waits")       \
    X(order, uint32_t, "instruction numbers, processor after processor, each ascending (static placement)")            \
    X(processors, program_processor, "each processor's part of `order` (static placement)")

typedef struct program_op {
    uint32_t name, text, path;         /* strings */
    uint32_t constant, constant_count; /* into constants */
    uint32_t reserved;
    uint64_t hash[2]; /* of the op, as the compiler made it */
} program_op;

typedef struct program_constant {
    uint32_t name;
    uint32_t type; /* string; 0 for an integer */
    int64_t value;
} program_constant;

typedef struct program_live {
    uint32_t name;
    int32_t least, most;
} program_live;

typedef struct program_tensor {
    uint32_t name;
    uint32_t format;      /* string: the storage format's name */
    uint32_t format_text; /* string: the declaration of a block format, or 0 */
    uint8_t role, rank;   /* mt_role */
    uint8_t reserved[2];
    int64_t extent[PROGRAM_RANK];
    int64_t bytes;
    int64_t offset; /* MT_TEMP: byte offset in the run's memory (the slots); -1 for the others, which are bound */
    int16_t live[PROGRAM_RANK]; /* live value that is the current extent, or -1 */
    uint8_t padding[6];
} program_tensor;

typedef struct program_operand {
    uint32_t tensor;
    uint8_t rank;
    uint8_t reserved[3];
    int64_t offset;                                     /* elements */
    int64_t extent[PROGRAM_RANK], stride[PROGRAM_RANK]; /* elements */
    int16_t live[PROGRAM_RANK];
    uint8_t padding[6];
} program_operand;

typedef struct program_barrier {
    uint32_t arrivals; /* per run; also every waiter's target */
    uint32_t reserved;
} program_barrier;

typedef struct program_node {
    uint32_t name, op;     /* string; index into ops */
    uint32_t first, count; /* instructions */
} program_node;

typedef struct program_processor {
    uint32_t first, count; /* of `order` */
} program_processor;

typedef struct program_section {
    uint64_t offset, count; /* bytes from the file's start; elements */
} program_section;

typedef struct program_header {
    char magic[8]; /* "MONOTILE" */
    uint32_t version, header_bytes;
    uint64_t file_bytes;
    uint64_t hash[2];                    /* XXH3-128 of everything behind the header */
    uint32_t placement, processor_count; /* mt_placement; the target's processors */
    uint64_t slot_bytes;                 /* memory of the MT_TEMP tensors */
#define X(name, type, what) program_section name;
    PROGRAM_SECTIONS(X)
#undef X
} program_header;

/* A program in memory: pointers into one block of bytes. Read-only once made; may be shared between threads. */
typedef struct mt_program {
    const program_header *header;
#define X(name, type, what)                                                                                            \
    const type *name;                                                                                                  \
    size_t name##_count;
    PROGRAM_SECTIONS(X)
#undef X
    file_map map; /* when loaded from a file */
    void *owned;  /* when built in memory */
} mt_program;

static inline const char *program_string(const mt_program *p, uint32_t offset) { return p->strings + offset; }

/* encode.c --------------------------------------------------------------------------------------------------------
 * A builder collects the sections in growable arrays and lays them out once. Sections of which only the count is set by
 * then, and no array, are written where they lie in the file: instructions, which are most of it. */
typedef struct program_builder {
    arena *memory;
#define X(name, type, what)                                                                                            \
    type *name;                                                                                                        \
    size_t name##_count, name##_capacity;
    PROGRAM_SECTIONS(X)
#undef X
    map interned;
    uint32_t placement, processor_count;
    uint64_t slot_bytes;
    program_header header; /* set when laid out, with the next */
    uint8_t *bytes;        /* of the file */
} program_builder;
/* The offset of a string in the string section; equal strings share. Offset 0 is "". */
uint32_t program_intern(program_builder *b, const char *s);
/* Makes the file's bytes with the sections that are there. The others' arrays are in it from then on, to be written
 * whole. The caller frees b->bytes when it does not come to program_finish. */
mt_status program_lay_out(program_builder *b, mt_error *error);
/* Hashes and checks the program, which gets the bytes; what the builder collected is not needed. */
mt_status program_finish(program_builder *b, mt_program **out, mt_error *error);

/* decode.c -------------------------------------------------------------------------------------------------------- */
/* From the bytes of a file, which stay the caller's and must live as long as the program: checks magic, version, sizes,
 * hash, every index and every string offset. Then program_check. */
mt_status program_open_memory(mt_program **out, const void *data, size_t size, const char *name, mt_error *error);
void program_free(mt_program *p);

/* check.c ---------------------------------------------------------------------------------------------------------
 * The static checker, linear in the program's size. It trusts nothing that scheduling did: ops are bound again from
 * their texts, boxes computed again, and it proves: every wait can be satisfied (arrivals add up, producers have lower
 * numbers), every processor's order is ascending and complete, every pair of conflicting accesses (also through slots
 * that share bytes) is ordered by a chain of barriers, every operand lies inside its tensor, every tensor inside its
 * memory. */
mt_status program_check(const mt_program *p, mt_error *error);

/* bind.c: the ops of a program, bound again, and the instances of its nodes. ----------------------------------------
 */
struct tile_op;
struct tile_instance;
/* Binds every op from its text (in `a`). */
mt_status program_bind_ops(const mt_program *p, arena *a, const struct tile_op ***out, mt_error *error);
/* The instance that instruction i runs in: extents from operands, args, live ranges. */
mt_status program_instance(const mt_program *p, const struct tile_op *op, const program_instruction *i,
                           struct tile_instance *out, mt_error *error);

/* print.c --------------------------------------------------------------------------------------------------------- */
void program_disassemble(const mt_program *p, size_t first, size_t count, text *out); /* one line an instruction */
mt_status program_inspect(const mt_program *p, size_t instruction, text *out,
                          mt_error *error); /* what it reads, writes, waits for, why */
void program_summary(const mt_program *p, text *out);

#endif
