/* The pre-tokenizers: how text is cut into pieces before BPE, which never merges across pieces.
 *
 * A pre-tokenizer is a list of patterns, applied one after another, each to what the one before left: every match is a
 * piece, and so is the text between two matches. The patterns are those of the models' own tokenizer files; the names
 * are those that GGUF files carry, and one name may stand for several models that cut alike. */
#include "llm/tokenizer.h"

/* White space, to be used inside of brackets. Not \s, which in PCRE2 has one character more (U+180E). */
#define WS             "\\t-\\r\\x{85}\\p{Z}"
#define SPACES         "[" WS "]"
#define NO_SPACE_AHEAD "(?![^" WS "])"
#define LAST_SPACES    SPACES "+" NO_SPACE_AHEAD "|" SPACES "+"
#define LINES          SPACES "*[\\r\\n]+"
#define CONTRACTION    "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD           "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SYMBOLS        " ?[^" WS "\\p{L}\\p{N}]+"

#define GPT2   "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" SYMBOLS "|" LAST_SPACES
#define LLAMA3 CONTRACTION "|" WORD "|\\p{N}{1,3}|" SYMBOLS "[\\r\\n]*|" LINES "|" LAST_SPACES
#define QWEN2  CONTRACTION "|" WORD "|\\p{N}|" SYMBOLS "[\\r\\n]*|" LINES "|" LAST_SPACES
/* Words that begin at a change from lower to upper case. */
#define UPPER         "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER         "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(end)    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" end
#define BLOOM         " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"
#define HAN_TO_HANGUL "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
/* The letters that DeepSeek LLM counts as such. */
#define DEEPSEEK_LETTERS                                                                                               \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}"                    \
    "\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}"     \
    "\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}"         \
    "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}"                  \
    "\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}"                  \
    "\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}"          \
    "\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}"         \
    "\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}"          \
    "\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}"                    \
    "\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}"          \
    "\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"                   \
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}"                  \
    "\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}"            \
    "\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"

static const tokenizer_pre table[] = {
    /* For files that name no pre-tokenizer or "default". */
    {"default", {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}, false, false},
    {"gpt-2 phi-2 mpt olmo jais trillion gigachat a.x-4.0 mellum exaone4 granite-docling", {GPT2}, false, false},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", {"\\p{N}", GPT2}, false, false},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", {LLAMA3}, true, true},
    {"dbrx smaug-bpe glm4 chatglm-bpe", {LLAMA3}, false, false},
    {"qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan solar-open grok-2 kormo", {QWEN2}, false, false},
    {"qwen35",
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES
                  "|" LAST_SPACES},
     false,
     false},
    {"tekken", {CASED("") "|\\p{N}|" SYMBOLS "[\\r\\n/]*|" LINES "|" LAST_SPACES}, true, true},
    {"gpt-4o llama4 kanana2 minimax-m2",
     {CASED(CONTRACTION "?") "|\\p{N}{1,3}|" SYMBOLS "[\\r\\n/]*|" LINES "|" LAST_SPACES},
     false,
     false},
    /* White space that ends the text is matched from its beginning only, for a time linear in its length. */
    {"deepseek-llm",
     {"[\\r\\n]", SPACES "?[" DEEPSEEK_LETTERS "]+",
      SPACES "?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
      "(?<!" SPACES ")" SPACES "+\\z", HAN_TO_HANGUL, "\\p{N}+"},
     false,
     false},
    {"deepseek-coder", {"[\\r\\n]", SPACES "?\\p{L}+", SPACES "?\\p{P}+", HAN_TO_HANGUL, "\\p{N}"}, false, false},
    {"deepseek-v3 hunyuan-dense joyai-llm",
     {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
      "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES
      "|" LAST_SPACES},
     false,
     false},
    {"falcon", {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"}, false, false},
    {"bloom gpt3-finnish poro-chat", {BLOOM}, false, false},
    {"viking", {BLOOM, "\\p{N}"}, false, false},
    {"seed-coder",
     {CONTRACTION "|" WORD "|\\p{N}| ?[^" WS "\\p{L}\\p{N}\\r\\n]+|" LINES "|" LAST_SPACES},
     false,
     false},
    {"bailingmoe bailingmoe2 llada-moe",
     {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^" WS "\\p{L}\\p{N}]++[\\r\\n]*|" SPACES
      "*[\\r\\n]|" LAST_SPACES},
     false,
     false},
};

const tokenizer_pre *tokenizer_pre_find(const char *name, size_t length) {
    for (size_t i = 0; i < COUNT_OF(table); i++)
        for (const char *p = table[i].names; *p;) {
            const size_t n = strcspn(p, " ");
            if (n == length && !memcmp(p, name, n)) return &table[i];
            p += n + (p[n] == ' ');
        }
    return NULL;
}
