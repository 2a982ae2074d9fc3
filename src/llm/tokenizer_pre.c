/* The pre-tokenizers: how text is cut into pieces before BPE, which never merges across pieces.
 *
 * A pre-tokenizer is a list of patterns, applied one after another, each to what the one before left: every match is a
 * piece, and so is the text between two matches. The patterns are those of the models' own tokenizer files; the names are
 * those that GGUF files carry, and one name may stand for several models that cut alike. */
#include "llm/tokenizer.h"

/* White space, to be used inside of brackets. Not \s, which in PCRE2 has one character more (U+180E). */
#define WS "\\t-\\r\\x{85}\\p{Z}"
#define SPACES "[" WS "]"
#define NO_SPACE_AHEAD "(?![^" WS "])"
#define LAST_SPACES SPACES "+" NO_SPACE_AHEAD "|" SPACES "+"
#define LINES SPACES "*[\\r\\n]+"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SYMBOLS " ?[^" WS "\\p{L}\\p{N}]+"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" SYMBOLS "|" LAST_SPACES
#define LLAMA3 CONTRACTION "|" WORD "|\\p{N}{1,3}|" SYMBOLS "[\\r\\n]*|" LINES "|" LAST_SPACES
#define QWEN2 CONTRACTION "|" WORD "|\\p{N}|" SYMBOLS "[\\r\\n]*|" LINES "|" LAST_SPACES
/* Words that begin at a change from lower to upper case. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(end) "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" end
#define BLOOM " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"
#define HAN_TO_HANGUL "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
/* The letters that DeepSeek LLM counts as such. */
#define DEEPSEEK_LETTERS                                                                                               \
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌ"                 \
    "ῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"

static const tokenizer_pre table[] = {
    /* For files that name no pre-tokenizer or "default". */
    {"default", {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}, false, false},
    {"gpt-2 phi-2 mpt olmo jais trillion gigachat a.x-4.0 mellum exaone4 granite-docling", {GPT2}, false, false},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", {"\\p{N}", GPT2}, false, false},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", {LLAMA3}, true, true},
    {"dbrx smaug-bpe glm4 chatglm-bpe", {LLAMA3}, false, false},
    {"qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan solar-open grok-2 kormo", {QWEN2}, false, false},
    {"qwen35", {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES
                "|" LAST_SPACES}, false, false},
    {"tekken", {CASED("") "|\\p{N}|" SYMBOLS "[\\r\\n/]*|" LINES "|" LAST_SPACES}, true, true},
    {"gpt-4o llama4 kanana2 minimax-m2",
     {CASED(CONTRACTION "?") "|\\p{N}{1,3}|" SYMBOLS "[\\r\\n/]*|" LINES "|" LAST_SPACES}, false, false},
    /* White space that ends the text is matched from its beginning only, for a time linear in its length. */
    {"deepseek-llm", {"[\\r\\n]", SPACES "?[" DEEPSEEK_LETTERS "]+",
                      SPACES "?[!-/:-~！-／：-～‘-‟　-。]+", "(?<!" SPACES ")" SPACES "+\\z", HAN_TO_HANGUL, "\\p{N}+"},
     false, false},
    {"deepseek-coder", {"[\\r\\n]", SPACES "?\\p{L}+", SPACES "?\\p{P}+", HAN_TO_HANGUL, "\\p{N}"}, false, false},
    {"deepseek-v3 hunyuan-dense joyai-llm",
     {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
      "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES "|" LAST_SPACES},
     false, false},
    {"falcon", {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"}, false, false},
    {"bloom gpt3-finnish poro-chat", {BLOOM}, false, false},
    {"viking", {BLOOM, "\\p{N}"}, false, false},
    {"seed-coder", {CONTRACTION "|" WORD "|\\p{N}| ?[^" WS "\\p{L}\\p{N}\\r\\n]+|" LINES "|" LAST_SPACES}, false, false},
    {"bailingmoe bailingmoe2 llada-moe",
     {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^" WS "\\p{L}\\p{N}]++[\\r\\n]*|" SPACES "*[\\r\\n]|"
      LAST_SPACES}, false, false},
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
