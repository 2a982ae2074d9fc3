/* Random bytes that are good weights in a storage format. */
#ifndef MODEL_SYNTHETIC_POOL_H
#define MODEL_SYNTHETIC_POOL_H

#include "tile/type.h"

/* Fills `bytes`, a multiple of the format's block (of 8 elements, where they are smaller than a byte), with finite
 * numbers of mean about 0 and, where the format allows it, standard deviation `spread`; returns the deviation that they
 * have in *have. The same arguments give the same bytes. MT_E_UNSUPPORTED: a format that has no negative numbers. */
mt_status synthetic_fill(const tile_format *f, double spread, void *out, size_t bytes, double *have, mt_error *error);

/* The next of a sequence of random numbers (splitmix64: Steele, Lea, Flood 2014), and one about normally distributed.
 */
uint64_t synthetic_random(uint64_t *state);
double synthetic_normal(uint64_t *state);

#endif
