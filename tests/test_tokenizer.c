/* The tokenizer: against PyPI's tokenizers on a trained vocabulary and, where MONOTILE_MODEL names a model file, on the
 * real one; its own rules on small vocabularies; hostile vocabularies and texts. */
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include "llm/tokenizer.h"
#include "text_oracle.h"

/* A vocabulary that grows by calls; strings are literals or belong to an oracle. */
typedef struct vocabulary {
    tokenizer_config config;
    tokenizer_text tokens[70000], merges[70000];
    int32_t types[70000];
} vocabulary;

static tokenizer_text str(const char *s) { return (tokenizer_text){s, strlen(s)}; }

static vocabulary *vocabulary_new(const char *pre) {
    vocabulary *v = calloc(1, sizeof *v);
    assert_non_null(v);
    v->config = (tokenizer_config){.model = str("gpt2"),
                                   .pre = str(pre),
                                   .tokens = v->tokens,
                                   .types = v->types,
                                   .merges = v->merges,
                                   .bos = -1,
                                   .eos = -1,
                                   .eot = -1,
                                   .eom = -1,
                                   .unknown = -1,
                                   .add_bos = -1,
                                   .add_eos = -1};
    return v;
}

static int32_t add_token(vocabulary *v, tokenizer_text token, int32_t type) {
    assert_true(v->config.token_count < COUNT_OF(v->tokens));
    v->tokens[v->config.token_count] = token;
    v->types[v->config.token_count] = type;
    return (int32_t)v->config.token_count++;
}

static void add_merge(vocabulary *v, tokenizer_text merge) {
    assert_true(v->config.merge_count < COUNT_OF(v->merges));
    v->merges[v->config.merge_count++] = merge;
}

/* All bytes, in order: the id is the byte. */
static vocabulary *vocabulary_of_bytes(const char *pre) {
    static char names[256][3];
    vocabulary *v = vocabulary_new(pre);
    for (int b = 0, extra = 256; b < 256; b++) {
        const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        const int c = printable ? b : extra++;
        if (c < 128)
            snprintf(names[b], 3, "%c", c);
        else
            snprintf(names[b], 3, "%c%c", 0xC0 | c >> 6, 0x80 | (c & 63));
        add_token(v, str(names[b]), TOKEN_NORMAL);
    }
    return v;
}

static mt_tokenizer *make(const vocabulary *v) {
    mt_tokenizer *t = NULL;
    mt_error error = {0};
    if (tokenizer_new(&t, &v->config, &error)) fail_msg("%s", error.message);
    return t;
}

static void expect_failure(const vocabulary *v, mt_status status, const char *part) {
    mt_tokenizer *t = NULL;
    mt_error error = {0};
    assert_int_equal(tokenizer_new(&t, &v->config, &error), status);
    assert_int_equal(error.code, status);
    assert_null(t);
    if (!strstr(error.message, part)) fail_msg("\"%s\" does not say \"%s\"", error.message, part);
    assert_int_equal(tokenizer_new(&t, &v->config, NULL), status);
}

static mt_tokens encode(const mt_tokenizer *t, const char *bytes, size_t length, unsigned flags) {
    mt_tokens tokens = {0};
    mt_error error = {0};
    if (mt_tokenizer_encode(t, bytes, length, flags, &tokens, &error)) fail_msg("%s", error.message);
    return tokens;
}

static void expect_ids(const mt_tokenizer *t, const char *bytes, unsigned flags, const int32_t *ids, size_t count) {
    mt_tokens tokens = encode(t, bytes, strlen(bytes), flags);
    assert_int_equal(tokens.count, count);
    if (count) assert_memory_equal(tokens.ids, ids, count * sizeof *ids);
    mt_tokens_free(&tokens);
}
#define EXPECT(t, bytes, flags, ...)                                                                                   \
    expect_ids(t, bytes, flags, (const int32_t[]){__VA_ARGS__},                                                        \
               sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* The oracle ------------------------------------------------------------------------------------------------------- */

static void check_streams(const mt_tokenizer *t, oracle *o) {
    const uint32_t count = oracle_u32(o);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t n = oracle_u32(o);
        assert_true(n < 1000);
        int32_t ids[1000];
        for (uint32_t j = 0; j < n; j++) ids[j] = (int32_t)oracle_u32(o);
        size_t raw_length, length, part_length;
        const char *raw = oracle_string(o, &raw_length), *wanted = oracle_string(o, &length), *part;
        char *bytes = NULL;
        assert_int_equal(mt_tokenizer_decode(t, ids, n, MT_DECODE_CONTROL, &bytes, &part_length, NULL), MT_OK);
        assert_int_equal(part_length, raw_length);
        assert_memory_equal(bytes, raw, raw_length + 0);
        free(bytes);
        mt_detokenizer *d = NULL;
        assert_int_equal(mt_detokenizer_new(&d, t, MT_DECODE_CONTROL, NULL), MT_OK);
        text got = {0};
        for (uint32_t j = 0; j <= n; j++) {
            if (j < n)
                assert_int_equal(mt_detokenizer_push(d, ids[j], &part, &part_length, NULL), MT_OK);
            else
                assert_int_equal(mt_detokenizer_flush(d, &part, &part_length, NULL), MT_OK);
            assert_int_equal(part[part_length], 0);
            text_append(&got, part, part_length);
        }
        assert_int_equal(got.length, length);
        if (length) assert_memory_equal(got.data, wanted, length);
        text_free(&got);
        mt_detokenizer_free(d);
    }
}

static void check_against_oracle(const char *model) {
    oracle o;
    if (!oracle_run(&o, "oracle_tokenizer.py", model)) skip();
    vocabulary *v = vocabulary_new("");
    for (uint32_t i = 0, n = oracle_u32(&o); i < n; i++) {
        tokenizer_text token;
        token.data = oracle_string(&o, &token.length);
        add_token(v, token, (int32_t)oracle_u32(&o));
    }
    for (uint32_t i = 0, n = oracle_u32(&o); i < n; i++) {
        tokenizer_text merge;
        merge.data = oracle_string(&o, &merge.length);
        add_merge(v, merge);
    }
    const uint32_t pre_count = oracle_u32(&o);
    size_t wrong = 0, right = 0;
    mt_tokenizer *t = NULL;
    for (uint32_t p = 0; p < pre_count; p++) {
        v->config.pre.data = oracle_string(&o, &v->config.pre.length);
        tokenizer_free(t);
        t = make(v);
        const uint32_t cases = oracle_u32(&o);
        for (uint32_t i = 0; i < cases; i++) {
            const unsigned flags = oracle_u32(&o);
            size_t length;
            const char *bytes = oracle_string(&o, &length);
            const uint32_t count = oracle_u32(&o);
            assert_true(o.bytes.length - o.at >= count * sizeof(int32_t));
            mt_tokens tokens = encode(t, bytes, length, flags);
            const bool same =
                tokens.count == count && (!count || !memcmp(tokens.ids, o.bytes.data + o.at, count * sizeof(int32_t)));
            if (!same && wrong < 10)
                print_message("%.*s: case %u differs: \"%.*s\"\n", (int)v->config.pre.length, v->config.pre.data, i,
                              (int)length, bytes);
            wrong += !same;
            right += same;
            if (same && !tokens.dropped) { /* and back */
                char *decoded = NULL;
                size_t decoded_length;
                assert_int_equal(
                    mt_tokenizer_decode(t, tokens.ids, count, MT_DECODE_CONTROL, &decoded, &decoded_length, NULL),
                    MT_OK);
                assert_int_equal(decoded_length, length);
                assert_memory_equal(decoded, bytes, length + 0);
                free(decoded);
            }
            mt_tokens_free(&tokens);
            o.at += count * sizeof(int32_t);
        }
    }
    print_message("%zu texts with %u pre-tokenizers\n", right, pre_count);
    check_streams(t, &o);
    assert_int_equal(o.at, o.bytes.length);
    assert_int_equal(wrong, 0);
    tokenizer_free(t);
    free(v);
    text_free(&o.bytes);
}

static void test_trained_vocabulary(void **state) {
    (void)state;
    check_against_oracle("-");
}

static void test_real_vocabulary(void **state) {
    (void)state;
    const char *model = getenv("MONOTILE_MODEL");
    if (!model || !*model) {
        print_message("SKIPPED: MONOTILE_MODEL names no model file\n");
        skip();
    }
    check_against_oracle(model);
}

/* Rules ------------------------------------------------------------------------------------------------------------ */

static void test_merges(void **state) {
    (void)state;
    vocabulary *v = vocabulary_of_bytes("gpt-2");
    const int32_t ab = add_token(v, str("ab"), TOKEN_NORMAL), bc = add_token(v, str("bc"), TOKEN_NORMAL);
    const int32_t abc = add_token(v, str("abc"), TOKEN_NORMAL), aa = add_token(v, str("aa"), TOKEN_NORMAL);
    const int32_t aaaa = add_token(v, str("aaaa"), TOKEN_NORMAL), ga = add_token(v, str("Ġa"), TOKEN_NORMAL);
    const char *const merges[] = {"b c", "a b", "a bc", "a a", "aa aa", "Ġ a"};
    for (size_t i = 0; i < COUNT_OF(merges); i++) add_merge(v, str(merges[i]));
    mt_tokenizer *t = make(v);
    EXPECT(t, "abc", 0, abc); /* the stronger "b c" first, then "a bc" */
    EXPECT(t, "ab", 0, ab);
    EXPECT(t, "bcab", 0, bc, ab);
    EXPECT(t, "aaaaa", 0, aaaa, 'a'); /* the leftmost first */
    EXPECT(t, "aaa", 0, aa, 'a');
    EXPECT(t, " a", 0, ga);
    EXPECT(t, "a  a", 0, 'a', ' ', ga);
    EXPECT(t,
           "a\xFF\xC0"
           "a\xE2\x82",
           0, 'a', 0xFF, 0xC0, 'a', 0xE2, 0x82); /* no UTF-8 */
    EXPECT(t, "\xED\xA0\x80\xF4\x90\x80\x80", 0, 0xED, 0xA0, 0x80, 0xF4, 0x90, 0x80, 0x80);
    expect_ids(t, "", 0, NULL, 0);
    mt_tokens tokens = {0}; /* appended */
    assert_int_equal(mt_tokenizer_encode(t, "ab", 2, 0, &tokens, NULL), MT_OK);
    assert_int_equal(mt_tokenizer_encode(t, "abc", 3, 0, &tokens, NULL), MT_OK);
    assert_int_equal(mt_tokenizer_encode(t, NULL, 0, 0, &tokens, NULL), MT_OK);
    assert_int_equal(tokens.count, 2);
    assert_true(tokens.ids[0] == ab && tokens.ids[1] == abc && tokens.dropped == 0);
    mt_tokens_free(&tokens);
    tokenizer_free(t);
    free(v);
}

static void test_special_tokens(void **state) {
    (void)state;
    vocabulary *v = vocabulary_of_bytes("smollm");
    const int32_t end = add_token(v, str("<|im_end|>"), TOKEN_CONTROL), x = add_token(v, str("<x>"), TOKEN_CONTROL);
    const int32_t xy = add_token(v, str("<x>yz"), TOKEN_CONTROL), user = add_token(v, str("  "), TOKEN_USER_DEFINED);
    const int32_t bos = add_token(v, str("<s>"), TOKEN_CONTROL), unknown = add_token(v, str("<unk>"), TOKEN_UNKNOWN);
    const int32_t empty = add_token(v, str(""), TOKEN_CONTROL);
    v->config.bos = bos;
    v->config.add_bos = 1;
    v->config.eos = x;
    v->config.eot = end;
    v->config.unknown = unknown;
    mt_tokenizer *t = make(v);
    EXPECT(t, "a<x>b", MT_ENCODE_PARSE_SPECIAL, 'a', x, 'b');
    EXPECT(t, "<x>y<x>yz<x>", MT_ENCODE_PARSE_SPECIAL, x, 'y', xy, x);
    EXPECT(t, "<x>", 0, '<', 'x', '>');
    EXPECT(t, "<x", MT_ENCODE_PARSE_SPECIAL, '<', 'x');
    EXPECT(t, "a  b", 0, 'a', user, 'b');
    EXPECT(t, "a", MT_ENCODE_ADD_SPECIAL, bos, 'a');
    EXPECT(t, "", MT_ENCODE_ADD_SPECIAL, bos);
    EXPECT(t, "<unk><|im_end|>", MT_ENCODE_PARSE_SPECIAL, unknown, end);
    assert_int_equal(mt_tokenizer_count(t), 256 + 7);
    assert_int_equal(mt_tokenizer_find(t, "<x>", 3), x);
    assert_int_equal(mt_tokenizer_find(t, "<x>y", 4), -1);
    assert_int_equal(mt_tokenizer_find(t, "a", 1), -1);
    assert_int_equal(mt_tokenizer_find(t, "", 0), -1);
    assert_true(mt_tokenizer_is_end(t, end) && mt_tokenizer_is_end(t, x) && !mt_tokenizer_is_end(t, bos) &&
                !mt_tokenizer_is_end(t, 'a'));
    assert_true(mt_tokenizer_is_control(t, unknown) && !mt_tokenizer_is_control(t, user) &&
                !mt_tokenizer_is_control(t, -1));
    assert_false(mt_tokenizer_is_end(t, 10000));
    assert_int_equal(mt_tokenizer_special(t, MT_TOKEN_BOS), bos);
    assert_int_equal(mt_tokenizer_special(t, MT_TOKEN_EOM), -1);
    assert_int_equal(mt_tokenizer_special(t, (mt_special)77), -1);
    size_t length = 7;
    assert_null(mt_tokenizer_piece(t, -1, &length));
    assert_null(mt_tokenizer_piece(t, 256 + 7, &length));
    assert_non_null(mt_tokenizer_piece(t, empty, &length));
    assert_int_equal(length, 0);
    const int32_t ids[] = {bos, 'a', user, end};
    char *s = NULL;
    assert_int_equal(mt_tokenizer_decode(t, ids, 4, 0, &s, &length, NULL), MT_OK);
    assert_string_equal(s, "a  ");
    free(s);
    assert_int_equal(mt_tokenizer_decode(t, ids, 4, MT_DECODE_CONTROL, &s, NULL, NULL), MT_OK);
    assert_string_equal(s, "<s>a  <|im_end|>");
    free(s);
    assert_int_equal(mt_tokenizer_decode(t, ids, 0, 0, &s, NULL, NULL), MT_OK);
    assert_string_equal(s, "");
    free(s);
    const int32_t bad[] = {'a', -1}, large[] = {1 << 30};
    mt_error error = {0};
    assert_int_equal(mt_tokenizer_decode(t, bad, 2, 0, &s, NULL, &error), MT_E_ARGUMENT);
    assert_int_equal(mt_tokenizer_decode(t, large, 1, 0, &s, NULL, &error), MT_E_ARGUMENT);
    assert_non_null(strstr(error.message, "1073741824"));
    tokenizer_free(t);
    free(v);
}

/* Bytes without a token are left out and counted, and their neighbours meet; a space is put in front on demand. */
static void test_gaps_and_prefix(void **state) {
    (void)state;
    vocabulary *v = vocabulary_new("gpt-2");
    add_token(v, str("a"), TOKEN_NORMAL);
    add_token(v, str("b"), TOKEN_NORMAL);
    add_token(v, str("ab"), TOKEN_NORMAL);
    add_token(v, str("Ġ"), TOKEN_NORMAL);
    add_token(v, str("<x>"), TOKEN_CONTROL);
    add_merge(v, str("a b"));
    v->config.add_space_prefix = true;
    mt_tokenizer *t = make(v);
    mt_tokens tokens = encode(t, "axb", 3, 0);
    assert_int_equal(tokens.count, 2);
    assert_true(tokens.ids[0] == 3 && tokens.ids[1] == 2);
    assert_int_equal(tokens.dropped, 1);
    mt_tokens_free(&tokens);
    EXPECT(t, " a<x>b<x>", MT_ENCODE_PARSE_SPECIAL, 3, 0, 4, 3, 1, 4);
    tokenizer_free(t);
    free(v);
}

static void test_detokenizer(void **state) {
    (void)state;
    vocabulary *v = vocabulary_of_bytes("gpt-2");
    mt_tokenizer *t = make(v);
    mt_detokenizer *d = NULL;
    assert_int_equal(mt_detokenizer_new(&d, t, 0, NULL), MT_OK);
    static const struct {
        int byte;
        const char *out;
    } steps[] = {{'a', "a"},
                 {0xE2, ""},
                 {0x82, ""},
                 {0xAC, "€"},
                 {0xF0, ""},
                 {0x9F, ""},
                 {'b', "\uFFFD"
                       "b"},
                 {0x80, "\uFFFD"},
                 {0xE0, ""},
                 {0x80, "\uFFFD\uFFFD"},
                 {0xF0, ""},
                 {0x9F, ""},
                 {0x91, ""},
                 {0x8D, "👍"},
                 {0xC3, ""},
                 {-1, "\uFFFD"},
                 {-1, ""},
                 {'c', "c"}};
    for (size_t i = 0; i < COUNT_OF(steps); i++) {
        const char *out = NULL;
        size_t length;
        if (steps[i].byte >= 0)
            assert_int_equal(mt_detokenizer_push(d, steps[i].byte, &out, &length, NULL), MT_OK);
        else
            assert_int_equal(mt_detokenizer_flush(d, &out, &length, NULL), MT_OK);
        assert_string_equal(out, steps[i].out);
        assert_int_equal(length, strlen(out));
    }
    const char *out;
    size_t length;
    assert_int_equal(mt_detokenizer_push(d, 256, &out, &length, NULL), MT_E_ARGUMENT);
    mt_detokenizer_free(d);
    mt_detokenizer_free(NULL);
    tokenizer_free(t);
    free(v);
}

/* Hostile input ---------------------------------------------------------------------------------------------------- */

static void test_hostile_vocabularies(void **state) {
    (void)state;
    vocabulary *v = vocabulary_new("gpt-2");
    expect_failure(v, MT_E_FORMAT, "empty");
    v->config.model = str("llama");
    expect_failure(v, MT_E_UNSUPPORTED, "\"llama\"");
    v->config.model = (tokenizer_text){0};
    expect_failure(v, MT_E_UNSUPPORTED, "gpt2");
    v->config.model = str("gpt2");
    v->config.pre = str("no\nsuch");
    expect_failure(v, MT_E_UNSUPPORTED, "\"no?such\"");
    free(v);

    v = vocabulary_of_bytes("");
    tokenizer_free(make(v)); /* no name is "default" */
    v->types[7] = 7;
    expect_failure(v, MT_E_FORMAT, "Token 7 is of type 7");
    v->types[7] = TOKEN_NORMAL;
    const tokenizer_text seven = v->tokens[7];
    v->tokens[7] = str("\xC3(");
    expect_failure(v, MT_E_FORMAT, "Token 7 is no UTF-8");
    v->tokens[7] = str("b");
    expect_failure(v, MT_E_FORMAT, "Tokens 7 and 98 are the same");
    char *large = calloc(1, 70000);
    assert_non_null(large);
    memset(large, 'a', 70000);
    v->tokens[7] = (tokenizer_text){large, 65536};
    expect_failure(v, MT_E_LIMIT, "65536 bytes");
    v->tokens[7] = (tokenizer_text){large, 65535};
    tokenizer_free(make(v));
    v->tokens[7] = seven;
    add_token(v, str("<a>"), TOKEN_CONTROL);
    add_token(v, str("<a>"), TOKEN_USER_DEFINED);
    expect_failure(v, MT_E_FORMAT, "are the same: \"<a>\"");
    v->config.token_count -= 2;

    static const char *const merges[] = {"", " ", "a", "a ", " a", "ab", "a 你", "\xFF a", "a  b"};
    for (size_t i = 0; i < COUNT_OF(merges); i++) {
        v->config.merge_count = 0;
        add_merge(v, str(merges[i]));
        expect_failure(v, MT_E_FORMAT, "Merge 0 is not two tokens");
    }
    v->merges[0] = (tokenizer_text){large, 70000};
    expect_failure(v, MT_E_FORMAT, "Merge 0 is not");
    large[69000] = ' ';
    expect_failure(v, MT_E_FORMAT, "Merge 0 is not");
    large[69000] = 'a', large[100] = ' ';
    expect_failure(v, MT_E_FORMAT, "Merge 0 is not");
    v->merges[0] = str("a b");
    expect_failure(v, MT_E_FORMAT, "Merge 0, \"a b\", needs a token");
    add_token(v, str("ab"), TOKEN_CONTROL);
    expect_failure(v, MT_E_FORMAT, "needs a token"); /* plain text must not make a control token */
    v->types[256] = TOKEN_USER_DEFINED;
    tokenizer_free(make(v));
    add_merge(v, str("a b"));
    expect_failure(v, MT_E_FORMAT, "Merge 1, \"a b\", is there twice");
    v->config.merge_count = 1;

    v->config.bos = 257;
    expect_failure(v, MT_E_FORMAT, "beginning-of-sequence token has id 257");
    v->config.bos = -2;
    expect_failure(v, MT_E_FORMAT, "id -2");
    v->config.bos = INT64_MAX;
    expect_failure(v, MT_E_FORMAT, "id 9223372036854775807");
    v->config.bos = -1;
    v->config.unknown = 1ll << 32;
    expect_failure(v, MT_E_FORMAT, "unknown token");
    v->config.unknown = -1;
    v->config.add_bos = 1;
    expect_failure(v, MT_E_FORMAT, "beginning-of-sequence token in every text");
    v->config.add_bos = -1;
    v->config.add_eos = 1;
    expect_failure(v, MT_E_FORMAT, "end-of-sequence token in every text");
    v->config.add_eos = 0;
    v->config.token_count = ((size_t)1 << 24) + 1;
    expect_failure(v, MT_E_LIMIT, "16777217");
    free(large);
    free(v);
}

/* Whatever the bytes: they come back, with every pre-tokenizer. */
static void test_random_bytes(void **state) {
    (void)state;
    static const char *const names[] = {"default", "gpt-2",  "smollm", "llama-bpe",    "glm4",           "qwen2",
                                        "qwen35",  "tekken", "gpt-4o", "deepseek-llm", "deepseek-coder", "deepseek-v3",
                                        "falcon",  "bloom",  "viking", "seed-coder",   "bailingmoe"};
    uint64_t seed = 1;
    for (size_t p = 0; p < COUNT_OF(names); p++) {
        vocabulary *v = vocabulary_of_bytes(names[p]);
        add_token(v, str("ab"), TOKEN_NORMAL);
        add_token(v, str("\xE2\x82"), TOKEN_UNUSED); /* "â" and U+0082: outside of the alphabet, so no token of BPE */
        v->config.token_count--;
        add_token(v, str("<x>"), TOKEN_CONTROL);
        add_merge(v, str("a b"));
        mt_tokenizer *t = make(v);
        for (int i = 0; i < 300; i++) {
            unsigned char bytes[200];
            static const unsigned char some[] =
                "ab 19'<x>\n\r\t\xE2\x82\xAC\xF0\x9F\x91\x8D\xED\xA0\xC2\x85\xE3\x80\x80";
            const size_t length = (size_t)(i * 7) % sizeof bytes;
            for (size_t j = 0; j < length; j++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                bytes[j] = i % 2 ? some[(seed >> 33) % (sizeof some - 1)] : (unsigned char)(seed >> 56);
            }
            mt_tokens tokens = encode(t, (const char *)bytes, length, (unsigned)i % 4);
            char *back = NULL;
            size_t back_length;
            assert_int_equal(
                mt_tokenizer_decode(t, tokens.ids, tokens.count, MT_DECODE_CONTROL, &back, &back_length, NULL), MT_OK);
            assert_int_equal(back_length, length);
            if (length) assert_memory_equal(back, bytes, length);
            free(back);
            mt_tokens_free(&tokens);
        }
        tokenizer_free(t);
        free(v);
    }
}

/* Megabytes without a place to cut: quadratic work would not end. */
static void test_long_pieces(void **state) {
    (void)state;
    static const char *const names[] = {"gpt-2",  "smollm",       "llama-bpe",   "qwen2",  "tekken",
                                        "gpt-4o", "deepseek-llm", "deepseek-v3", "default"};
    enum { LENGTH = 1 << 19 };
    char *bytes = malloc(LENGTH);
    assert_non_null(bytes);
    for (size_t p = 0; p < COUNT_OF(names); p++) {
        vocabulary *v = vocabulary_of_bytes(names[p]);
        static char level[20][1 << 12];
        static char merges[20][1 << 13];
        for (int i = 1; i < 12; i++) { /* aa, aaaa, ... */
            memset(level[i], 'a', (size_t)1 << i);
            add_token(v, (tokenizer_text){level[i], (size_t)1 << i}, TOKEN_NORMAL);
            memset(merges[i], 'a', ((size_t)1 << i) + 1);
            merges[i][1 << (i - 1)] = ' ';
            add_merge(v, (tokenizer_text){merges[i], ((size_t)1 << i) + 1});
        }
        mt_tokenizer *t = make(v);
        static const char fills[] = "a A1-\n\t";
        for (const char *fill = fills; *fill; fill++) {
            memset(bytes, *fill, LENGTH);
            bytes[LENGTH - 1] = '\xFF'; /* no UTF-8 */
            mt_tokens tokens = encode(t, bytes, LENGTH, 0);
            assert_true(tokens.count > 0 && tokens.count <= LENGTH);
            if (*fill == 'a')
                assert_int_equal(tokens.count, 256 - 1 + 11 + 1); /* 255 of 2048, 1024, ..., 1, and the last byte */
            mt_tokens_free(&tokens);
            memcpy(bytes + LENGTH - 3, "中", 3);
            tokens = encode(t, bytes, LENGTH, 0);
            assert_true(tokens.count > 0 && tokens.count <= LENGTH);
            mt_tokens_free(&tokens);
        }
        tokenizer_free(t);
        free(v);
    }
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trained_vocabulary),
        cmocka_unit_test(test_real_vocabulary),
        cmocka_unit_test(test_merges),
        cmocka_unit_test(test_special_tokens),
        cmocka_unit_test(test_gaps_and_prefix),
        cmocka_unit_test(test_detokenizer),
        cmocka_unit_test(test_hostile_vocabularies),
        cmocka_unit_test(test_random_bytes),
        cmocka_unit_test(test_long_pieces),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
