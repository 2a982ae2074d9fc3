/* Byte-level BPE, from the arrays in a model's file to a tokenizer, and its parts.
 *
 *   text ─► special tokens ─► sections ─► pre-tokenizer's patterns ─► pieces ─► BPE merges ─► ids
 *           (tokenizer_encode.c)          (tokenizer_pre.c)                     (tokenizer_encode.c)
 *
 * In the file a token is written in GPT-2's alphabet: one printable character for each byte (0x20 is "Ġ"). Here tokens
 * are kept as the bytes they stand for; merges are pairs of ids. */
#ifndef LLM_TOKENIZER_H
#define LLM_TOKENIZER_H

#include "base/base.h"
#include "monotile/text.h"

/* Bytes with a length, as they lie in a file. */
typedef struct tokenizer_text {
    const char *data;
    size_t length;
} tokenizer_text;

/* The numbers that GGUF's tokenizer.ggml.token_type uses. */
enum { TOKEN_UNDEFINED, TOKEN_NORMAL, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER_DEFINED, TOKEN_UNUSED, TOKEN_BYTE };

/* What a model's file says, each field under "tokenizer.ggml." there. */
typedef struct tokenizer_config {
    tokenizer_text model; /* "gpt2" is byte-level BPE; others are MT_E_UNSUPPORTED */
    tokenizer_text pre;   /* the pre-tokenizer's name; empty is "default" */
    const tokenizer_text *tokens;
    size_t token_count;
    const int32_t *types;         /* token_type, token_count of them; NULL: all are normal */
    const tokenizer_text *merges; /* "left right", the strongest first */
    size_t merge_count;
    int64_t bos, eos, eot, eom, unknown; /* ..._token_id; -1 for none */
    int add_bos, add_eos;  /* add_..._token: 0 or 1; -1 where the file does not say: the pre-tokenizer's habit */
    bool add_space_prefix; /* put a space before plain text that begins without one */
} tokenizer_config;

/* Makes a tokenizer; nothing of the config is needed afterwards. User-defined tokens are found in every text, control
 * tokens only with MT_ENCODE_PARSE_SPECIAL. Limits (MT_E_LIMIT): 2^24 tokens and merges, 65,535 bytes a token.
 * MT_E_FORMAT: no tokens, two tokens or merges that are the same, text that is no UTF-8, a merge of or into a token
 * that does not exist, ids or types out of range. */
mt_status tokenizer_new(mt_tokenizer **out, const tokenizer_config *config, mt_error *error);
void tokenizer_free(mt_tokenizer *t); /* NULL is allowed */

/* tokenizer_pre.c -------------------------------------------------------------------------------------------------- */

enum { TOKENIZER_PATTERNS = 8 };

typedef struct tokenizer_pre {
    const char *names;                        /* the names that files use for it, with a space between two */
    const char *patterns[TOKENIZER_PATTERNS]; /* PCRE2; up to the first NULL */
    bool whole_pieces;                        /* a piece that is a token is that token, whatever the merges say */
    bool add_bos;                             /* where the file does not say */
} tokenizer_pre;

const tokenizer_pre *tokenizer_pre_find(const char *name, size_t length); /* NULL for an unknown name */

/* The tokenizer, for tokenizer*.c ---------------------------------------------------------------------------------- */

struct pcre2_real_code_8;

typedef struct tokenizer_merge {
    int32_t left, right, result; /* the first two are the key in `pairs` */
} tokenizer_merge;

enum { KIND_CONTROL = 1, KIND_USER = 2, KIND_END = 4 }; /* none of the first two: ordinary */

struct mt_tokenizer {
    arena *arena;
    size_t count;
    tokenizer_text *tokens; /* as bytes */
    uint8_t *kinds;
    map pieces;         /* the bytes of ordinary and user-defined tokens, to ids */
    int32_t bytes[256]; /* the token of a single byte; -1 where there is none */
    tokenizer_merge *merges;
    map pairs;        /* two ids to the merge of them; merges are numbered by strength, 0 the strongest */
    int32_t *special; /* control and user-defined tokens, sorted by their bytes */
    size_t special_count;
    bool special_first[256]; /* bytes with which one of them begins */
    const tokenizer_pre *pre;
    struct pcre2_real_code_8 *patterns[TOKENIZER_PATTERNS];
    int pattern_count;
    int32_t ids[5]; /* by mt_special */
    bool add_bos, add_eos, add_space_prefix;
};

/* Orders byte strings as memcmp does, a prefix first. */
int tokenizer_compare(tokenizer_text a, tokenizer_text b);

#endif
