/* Text in and out of a language model: the tokenizer, the chat template and the sampler.
 *
 * A tokenizer and a template never change once they are made: any number of threads may use one at the same time. A
 * detokenizer and a sampler hold the state of one stream of tokens: one thread at a time. Objects are freed by their
 * own _free function, which allows NULL; strings that a call hands out as `char **` are the caller's, to be released
 * with free(). On failure outputs stay as they were, unless a function says otherwise. */
#ifndef MONOTILE_TEXT_H
#define MONOTILE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "monotile/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tokenizer ---------------------------------------------------------------------------------------------------------
 * Text to token ids and back. It belongs to the model that it came from. Text is bytes with a length; UTF-8 is expected
 * but not required: bytes that are no UTF-8 are tokenized by themselves and come back unchanged from
 * mt_tokenizer_decode. */
typedef struct mt_tokenizer mt_tokenizer;

/* A growing list of token ids. Zero-initialise; free with mt_tokens_free. */
typedef struct mt_tokens {
    int32_t *ids;
    size_t count, capacity;
    size_t dropped; /* bytes of text that were left out, because the vocabulary has no token for them */
} mt_tokens;

MT_API void mt_tokens_free(mt_tokens *tokens);

enum {
    /* Put the beginning-of-sequence token in front, and the end-of-sequence token behind, if the model's file asks. */
    MT_ENCODE_ADD_SPECIAL = 1,
    /* Control tokens written out in the text ("<|im_end|>") become those tokens. Set it for the output of a chat
     * template or a person's raw prompt; without it such text is plain text, which cannot end a turn. */
    MT_ENCODE_PARSE_SPECIAL = 2,
};

/* Appends the tokens of `text` to *out. Where several special tokens fit, the leftmost wins, then the longest.
 * MT_E_LIMIT: more than 2^28 bytes, or text that exhausts the pre-tokenizer's patterns. */
MT_API mt_status mt_tokenizer_encode(const mt_tokenizer *t, const char *text, size_t length, unsigned flags,
                                     mt_tokens *out, mt_error *error);

/* Tokens in the vocabulary: ids are 0 to count - 1. */
MT_API size_t mt_tokenizer_count(const mt_tokenizer *t);
/* The bytes of a token, which need not be whole characters; they belong to the tokenizer, and are not NUL-terminated.
 * NULL for an id outside of the vocabulary. */
MT_API const char *mt_tokenizer_piece(const mt_tokenizer *t, int32_t id, size_t *length);
/* The control or user-defined token that is written exactly so, or -1. */
MT_API int32_t mt_tokenizer_find(const mt_tokenizer *t, const char *text, size_t length);
/* A control token: a mark, not a piece of text. */
MT_API bool mt_tokenizer_is_control(const mt_tokenizer *t, int32_t id);
/* A token after which the model has nothing more to say: the end of sequence, turn or message that the file names, and
 * control tokens with one of the names in common use for them ("<|im_end|>", "<|eot_id|>", "<|endoftext|>", ...). */
MT_API bool mt_tokenizer_is_end(const mt_tokenizer *t, int32_t id);

typedef enum mt_special { MT_TOKEN_BOS, MT_TOKEN_EOS, MT_TOKEN_EOT, MT_TOKEN_EOM, MT_TOKEN_UNKNOWN } mt_special;
/* The id that the model's file gives for beginning or end of sequence, end of turn or message, unknown; -1 for none. */
MT_API int32_t mt_tokenizer_special(const mt_tokenizer *t, mt_special which);

enum { MT_DECODE_CONTROL = 1 }; /* write control tokens out; without it they decode to nothing */

/* The bytes of tokens one after another, and a NUL that `*length` (may be NULL) does not count. The text need not be
 * valid UTF-8. MT_E_ARGUMENT: an id outside of the vocabulary. */
MT_API mt_status mt_tokenizer_decode(const mt_tokenizer *t, const int32_t *ids, size_t count, unsigned flags,
                                     char **text, size_t *length, mt_error *error);

/* Decodes token by token for people to read: what it gives out is always valid UTF-8 and whole characters. The bytes of
 * an unfinished character are held back until the tokens that finish it. What can become no character any more, and
 * what is unfinished at the end, becomes U+FFFD, one for each maximal part of a character (like Python's "replace"). */
typedef struct mt_detokenizer mt_detokenizer;

/* The tokenizer must outlive it. `flags` as for mt_tokenizer_decode. */
MT_API mt_status mt_detokenizer_new(mt_detokenizer **out, const mt_tokenizer *t, unsigned flags, mt_error *error);
MT_API void mt_detokenizer_free(mt_detokenizer *d);
/* The text that this token completes, often none; *text is NUL-terminated and valid until the next call for `d`. */
MT_API mt_status mt_detokenizer_push(mt_detokenizer *d, int32_t id, const char **text, size_t *length, mt_error *error);
/* The same at the end of the tokens; afterwards `d` begins anew. */
MT_API mt_status mt_detokenizer_flush(mt_detokenizer *d, const char **text, size_t *length, mt_error *error);

/* Chat template -----------------------------------------------------------------------------------------------------
 * The Jinja template in a model's file, which turns a conversation into the text that the model was trained on. A part
 * of Jinja is understood, with the settings of Hugging Face's transformers (trim_blocks, lstrip_blocks); what is
 * outside of it fails with MT_E_UNSUPPORTED and a message that names the construct, its line and its column. Understood
 * are statements   if/elif/else, for (with unpacking, if, else, break, continue), set (also of a namespace's attribute,
 * and as a block), generation, comments, whitespace control; expressions  names, attributes, indices, slices, literals
 * (strings, integers, true, false, none, lists, tuples, dicts), + - * // % ~ == != < <= > >= in, not in, and, or, not,
 * x if y else z; loop         index, index0, revindex, revindex0, first, last, length, previtem, nextitem; filters
 * trim, length, count, upper, lower, capitalize, title, tojson (indent), default, d, first, last, join, list, string,
 * replace, items, safe; tests        defined, undefined, none, string, mapping, iterable, sequence, number, integer,
 * boolean, true, false, odd, even, equalto, eq, callable; methods      of strings: strip, lstrip, rstrip, split,
 * startswith, endswith, upper, lower, capitalize, title, replace, join; of dicts: get, items, keys, values; functions
 * raise_exception, namespace, range, strftime_now. An unknown filter, test, method or function matters only when it is
 * reached. Upper and lower case follow Unicode's simple mappings, one character for one. */
typedef struct mt_template mt_template;

typedef struct mt_message {
    const char *role, *content; /* NUL-terminated; a NULL content is none */
} mt_message;

typedef struct mt_template_options {
    bool add_generation_prompt; /* end with the opening of the assistant's turn */
    const char *bos_token;      /* what {{ bos_token }} writes; NULL leaves the name undefined, which writes nothing */
    const char *eos_token;
} mt_template_options;

/* Parses a template; the text is copied. MT_E_FORMAT: no UTF-8, or no Jinja. MT_E_LIMIT: more than 1 MiB, or nested too
 * deeply. */
MT_API mt_status mt_template_new(mt_template **out, const char *source, size_t length, mt_error *error);
MT_API void mt_template_free(mt_template *t);
/* Writes the conversation. *text is NUL-terminated; *length may be NULL. MT_E_ARGUMENT: the template itself rejects the
 * messages (raise_exception); the message is the template's. MT_E_FORMAT: the template does what Jinja forbids.
 * MT_E_LIMIT: more than 20 million steps or 256 MiB of text. */
MT_API mt_status mt_template_apply(const mt_template *t, const mt_message *messages, size_t count,
                                   const mt_template_options *options, char **text, size_t *length, mt_error *error);

/* Sampler -----------------------------------------------------------------------------------------------------------
 * Chooses the next token from logits, reproducibly: options, seed, step and logits alone decide, on every machine.
 *
 * With temperature 0 the largest logit wins, the lowest index among equals. Otherwise every token has the weight
 * exp((logit - largest) / temperature), computed in double by a routine of our own; then, in this order,
 *   top_k  keeps the k largest (0: all),
 *   top_p  keeps the largest until together they have at least this share of what top_k left (1: all),
 *   min_p  keeps those with at least this fraction of the largest's weight (0: all);
 * among equals lower indices come first. Then a number in [0, 1) times the sum of the weights is looked up among their
 * running sums, in the order of the indices. The number is what Philox4x32-10 gives for the key `seed` and the counter
 * `step`. A logit that is -inf or NaN is never chosen; +inf beats every other. */
typedef struct mt_sampler mt_sampler;

typedef struct mt_sampler_options {
    float temperature; /* 0 or more */
    float top_p;       /* in (0, 1] */
    float min_p;       /* in [0, 1] */
    int32_t top_k;     /* 0 or more */
    uint64_t seed;
} mt_sampler_options;

/* Greedy: temperature 0, top_p 1 and the rest 0. */
MT_API void mt_sampler_options_default(mt_sampler_options *options);
/* `options` NULL is greedy. MT_E_ARGUMENT: an option out of range. */
MT_API mt_status mt_sampler_new(mt_sampler **out, const mt_sampler_options *options, mt_error *error);
MT_API void mt_sampler_free(mt_sampler *s);
/* Chooses a token and counts one step. MT_E_ARGUMENT: no logit is a number above -inf. */
MT_API mt_status mt_sampler_sample(mt_sampler *s, const float *logits, size_t count, int32_t *token, mt_error *error);
/* Steps counted so far, which is the next call's counter; setting it goes back or ahead in the same sequence. */
MT_API uint64_t mt_sampler_step(const mt_sampler *s);
MT_API void mt_sampler_set_step(mt_sampler *s, uint64_t step);

#ifdef __cplusplus
}
#endif
#endif
