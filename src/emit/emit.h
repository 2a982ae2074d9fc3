/* From bound tile programs to source text. */
#ifndef EMIT_EMIT_H
#define EMIT_EMIT_H

#include "tile/tile.h"

/* Writes one C translation unit with a function for every op and the table `mt_cpu_ops` (cpu_abi.h). The text is
 * self-contained: it needs only the freestanding headers, <math.h> and, behind #ifdef, <immintrin.h>. Compile it with
 * emit_c_flags. Equal ops give equal text. */
mt_status emit_c(text *out, const tile_op *const *ops, size_t count, mt_error *error);
/* The function of one op with a short comment, for people (`monotile tile show`). */
mt_status emit_c_op(text *out, const tile_op *op, mt_error *error);
/* The compiler's arguments that the code relies on (contraction, no errno, ...), NULL-terminated, without the
 * compiler's name, the files and -shared. */
extern const char *const emit_c_flags[];

#endif
