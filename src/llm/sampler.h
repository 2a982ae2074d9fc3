/* What the sampler is made of, for its tests and for whoever samples elsewhere and must agree with it. */
#ifndef LLM_SAMPLER_H
#define LLM_SAMPLER_H

#include "base/base.h"
#include "monotile/text.h"

/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011): four random words
 * from a counter and a key, without any state. */
void sampler_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* The number in [0, 1), a multiple of 2^-53, that belongs to a seed and a step: key = the seed's low and high word,
 * counter = {step's low word, step's high word, 0, 0}; word 0 of the result gives the upper 32 bits, word 1 the rest.
 */
double sampler_uniform(uint64_t seed, uint64_t step);
/* exp(x) for x <= 0, 0 below -700; the same bits wherever double is IEEE 754, with an error below 2 units of the last
 * place. */
double sampler_exp(double x);

#endif
