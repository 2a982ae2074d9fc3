/* Stamped data: floats that hold a pattern which no result has until one is posted. Whoever waits for one waits for the
 * float itself, without a fence: neither a release, which waits for all that its SM is loading, nor an acquire. Ops of
 * level 2 stamp, post and take by themselves; between nodes the machine chooses (machine/device_stamp.c): then every
 * load of such a tensor is one of these, and every store is a post.
 *
 * Between nodes such a tensor lies in two places, which runs use in turn. A run stamps again what the run before used:
 * nobody reads it any more, since all have finished that run; and nobody in the next run can miss that, since all
 * finish this one first. */
#ifndef CUDA_STAMP_H
#define CUDA_STAMP_H

enum : uint32_t { MT_STAMP = 0xffffffffu };
enum { MT_STAMPED, MT_POSTED, MT_TAKEN };
MT_DEVICE void mt_stamp(float *p) {
    *(volatile uint32_t *)p = MT_STAMP;
    MT_AT_STAMPED(p, MT_STAMPED);
}
/* A NaN that has the pattern is posted as another. */
MT_DEVICE void mt_post(float *p, float v) {
    const uint32_t bits = mt_bits(v);
    *(volatile uint32_t *)p = bits == MT_STAMP ? 0x7fffffffu : bits;
    MT_AT_STAMPED(p, MT_POSTED);
}
template <int N> MT_DEVICE void mt_post(float *p, const float (&v)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) mt_post(p + i, v[i]);
}

/* Something has not been posted: whether to look again. No: the run is over, and the value does not matter. */
MT_DEVICE bool mt_stays(mt_context *mt) {
    if (mt_stop(mt->cta)) mt->stopped = CUDA_STAMP_WAIT;
    return !mt->stopped;
}
MT_DEVICE float mt_take_posted(mt_context *mt, const float *p) {
    uint32_t bits;
    while ((bits = mt_load_relaxed((const uint32_t *)p)) == MT_STAMP && mt_stays(mt)) {}
    MT_AT_STAMPED(p, MT_TAKEN);
    return mt_float(bits);
}
/* Behind all that a thread takes. */
MT_DEVICE void mt_taken(mt_context *mt) {
    if (mt->stopped == CUDA_STAMP_WAIT && mt_stop(mt->cta) == MT_TIMED_OUT) mt_give_up(mt, CUDA_STAMP_WAIT, 0, 0, 0);
}

/* N neighbours, 1, 2, 4 or 8, at a multiple of N floats or of 16 bytes: as they are now. mt_settle waits until all are
 * posted. Between the two a thread can look at more: so that all is on its way together. */
template <int N> MT_DEVICE void mt_look(float (&to)[N], const float *from) {
    enum { EACH = N < 4 ? N : 4 };
#pragma unroll
    for (int i = 0; i < N; i += EACH) {
        uint32_t words[EACH];
        mt_words_relaxed(words, (const uint32_t *)from + i);
#pragma unroll
        for (int j = 0; j < EACH; j++) to[i + j] = mt_float(words[j]);
    }
}
template <int N> MT_DEVICE bool mt_all_posted(const float (&v)[N]) {
    bool posted = true;
#pragma unroll
    for (int i = 0; i < N; i++) posted &= mt_bits(v[i]) != MT_STAMP;
    return posted;
}
template <int N> MT_DEVICE void mt_settle(mt_context *mt, float (&v)[N], const float *from) {
#pragma unroll 1
    while (!mt_all_posted(v) && mt_stays(mt)) mt_look(v, from);
}
MT_DEVICE float mt_settled(mt_context *mt, float (&v)[1], const float *from) {
    mt_settle(mt, v, from);
    return v[0];
}
template <int N> MT_DEVICE void mt_take_posted(mt_context *mt, float (&to)[N], const float *from) {
    mt_look(to, from);
    mt_settle(mt, to, from);
}

#endif
