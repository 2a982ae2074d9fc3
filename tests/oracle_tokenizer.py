"""Writes vocabularies and what PyPI's `tokenizers` makes of some thousand texts with them, for test_tokenizer.c.

    oracle_tokenizer.py MODEL OUT

MODEL is a GGUF file with a byte-level BPE vocabulary, read with PyPI's `gguf`; "-" trains a small vocabulary instead.
The pre-tokenizers are put together here as the models' own tokenizer.json files do it. Exit status 3: a package is
missing.

OUT: tokens (string, type), merges (string), then for every pre-tokenizer its name and cases (flags, text, ids), then
streams: ids, and their bytes decoded by Python with errors="replace". All integers 32 bits, counts in front.
"""
import json
import random
import struct
import sys
import unicodedata

try:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
except ImportError as e:
    print(e, file=sys.stderr)
    sys.exit(3)

NORMAL, CONTROL, USER = 1, 3, 4
ADD_SPECIAL, PARSE_SPECIAL = 1, 2

LLAMA_3 = r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
LAST = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
CASE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
HEAD = r"[^\r\n\p{L}\p{N}]?"


def split(*patterns):
    return [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def cased(end):
    return f"{HEAD}{UPPER}*{LOWER}+{end}|{HEAD}{UPPER}+{LOWER}*{end}"


DEEPSEEK_LETTERS = (
    r"A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}"
    r"\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}"
    r"\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}"
    r"\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}"
    r"\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}"
    r"\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}"
    r"\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}"
    r"\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}"
    r"\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}"
    r"\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}"
    r"\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}"
    r"\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}")
BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
PRE = {  # name: (parts, whole pieces)
    "smollm": ([pre_tokenizers.Digits(individual_digits=True), byte_level(True)], False),
    "gpt-2": ([byte_level(True)], False),
    "llama-bpe": (split(CASE + LLAMA_3 + LAST) + [byte_level(False)], True),
    "glm4": (split(CASE + LLAMA_3 + LAST) + [byte_level(False)], False),
    "qwen2": (split(CASE + "|" + HEAD + r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + LAST) + [byte_level(False)], False),
    "qwen35": (split(CASE + "|" + HEAD + r"[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + LAST)
               + [byte_level(False)], False),
    "tekken": (split(cased("") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + LAST) + [byte_level(False)], True),
    "gpt-4o": (split(cased(CASE + "?") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + LAST)
               + [byte_level(False)], False),
    "default": (split(r"[\p{P}$+<=>^~|]+",
                      r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
                      r"\p{N}+", "[0-9][0-9][0-9]") + [byte_level(False)], False),
    "deepseek-llm": (split(r"[\r\n]", rf"\s?[{DEEPSEEK_LETTERS}]+", r"\s?[!-/:-~！-／：-～‘-‟\x{3000}-。]+", r"\s+$",
                           "[一-龥ࠀ-一가-퟿]+", r"\p{N}+") + [byte_level(False)], False),
    "deepseek-coder": (split(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+")
                       + [pre_tokenizers.Digits(individual_digits=True), byte_level(False)], False),
    "deepseek-v3": (split(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
                          r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
                          r"| ?[\p{P}\p{S}]+[\r\n]*" + LAST) + [byte_level(False)], False),
    "falcon": ([pre_tokenizers.Punctuation("contiguous"), byte_level(True)] + split("[0-9][0-9][0-9]"), False),
    "bloom": (split(BLOOM) + [byte_level(False)], False),
    "viking": (split(BLOOM) + [pre_tokenizers.Digits(individual_digits=True), byte_level(False)], False),
    "seed-coder": (split(CASE + "|" + HEAD + r"\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+" + LAST)
                   + [byte_level(False)], False),
    "bailingmoe": (split(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
                         r"|\s+(?!\S)|\s+") + [byte_level(False)], False),
}

RANGES = [  # Latin, Greek, Cyrillic, Armenian, Hebrew, Arabic, Devanagari, Bengali, Tamil, Thai, Tibetan, Georgian,
    # Hangul, Ethiopic, Khmer, phonetic, punctuation, symbols, kana, CJK, emoji, mathematical letters, old scripts
    (0x20, 0x7F), (0xA0, 0x250), (0x250, 0x370), (0x370, 0x400), (0x400, 0x530), (0x531, 0x590), (0x591, 0x600),
    (0x600, 0x700),
    (0x900, 0x980), (0x980, 0xA00), (0xB80, 0xC00), (0xE00, 0xE80), (0xF00, 0x1000), (0x10A0, 0x1100), (0x1100, 0x1200),
    (0x1200, 0x1380), (0x1780, 0x1800), (0x1800, 0x18B0), (0x1D00, 0x1E00), (0x1E00, 0x2000), (0x2000, 0x2070),
    (0x2070, 0x2190), (0x2190, 0x2400), (0x2460, 0x2600), (0x2600, 0x27C0), (0x3000, 0x3130), (0x4E00, 0x4F00),
    (0x9F00, 0xA000), (0xAC00, 0xAD00), (0xD700, 0xD7A4), (0xFB00, 0xFE00), (0xFE00, 0x10000), (0x10300, 0x10400),
    (0x10400, 0x10500), (0x1D400, 0x1D7FF), (0x1F300, 0x1F650), (0x1F680, 0x1FA00), (0x20000, 0x20100),
    (0xE0000, 0xE0080),
]
CHARACTERS = [[chr(c) for c in range(*r) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")] for r in RANGES]
SPACES = [" ", " ", " ", "  ", "    ", "\n", "\n\n", "\r\n", "\t", "\t\t", "\v", "\f", "\x85", "\xa0",
          "\u1680", "\u180e", "\u2003", "\u2028", "\u2029", "\u200b", "\u202f", "\u3000", "\ufeff", "\x1c", "\x1f", "   \n   ", " \r"]
WORDS = """the The THE of and tokenizer don't we'll I'M she'D you'Ve they're it's 's 'S 'ſ \u2019s CamelCaseWord
HTTPServer snake_case int main(void) { return 0; } // comment /* x */ #include <stdio.h> def f(x): lambda
self.x += 1; <html> </a> &amp; https://example.org/a?b=c&d=%20 3 12 345 6789 1234567890 3.14 1,000 0x1F ½ ٣٤٥
¼ Ⅷ ５ naïve café Straße ΑΘΗΝΑ Ελλάδα Москва שלום مرحبا नमस्ते สวัสดี 你好世界 こんにちは 안녕하세요 👍 👩‍👩‍👧 🇩🇪 ❤️ … —
“quoted” 'single' `tick` $5 €9 100% a+b=c x^2 ~~ || && << >> ?!?! !!! ... (( [[ }} \\ \\n @user #tag""".split()


def make_texts(rng, count, special):
    texts = ["", " ", "\n", "a", " a", "0", "  a", "a  ", "\u0000", "\u0001\u0002\u0003\u0004\u0005",
             "\x7f", "é", "e\u0301", "\U0010ffff", "\ufffd"]
    while len(texts) < count:
        kind = rng.randrange(6)
        parts = []
        for _ in range(rng.choice([1, 2, 3, 5, 8, 13, 40])):
            if kind == 0:  # words
                parts += [rng.choice(WORDS), rng.choice(SPACES[:8])]
            elif kind == 1:  # one script after another
                parts += [rng.choice(rng.choice(CHARACTERS)) for _ in range(rng.randrange(6))]
                if rng.randrange(3) == 0:
                    parts.append(rng.choice(SPACES))
            elif kind == 2:  # one script
                parts += rng.choices(CHARACTERS[rng.randrange(len(CHARACTERS))], k=rng.randrange(5))
            elif kind == 3:  # runs: white space, digits, signs, letters
                parts.append(rng.choice(SPACES + ["0", "7", "A", "b", "!", "-", "'", "ñ", "中", "🙂"])
                             * rng.choice([1, 1, 2, 3, 4, 7, 30]))
            elif kind == 4:  # anything in ASCII
                parts += [chr(rng.randrange(128)) for _ in range(4)]
            else:  # special tokens among words
                parts += [rng.choice(special), rng.choice(["", " ", "\n", rng.choice(WORDS)])]
        texts.append("".join(parts))
    return texts


def train(rng):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = byte_level(True)
    trainer = trainers.BpeTrainer(vocab_size=1500, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(make_texts(rng, 3000, ["zebra", " quiz"]), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    types = [NORMAL] * len(tokens)
    special = [("<|a|>", CONTROL), ("<|a|>b", CONTROL), ("<|end▁of｜it|>", CONTROL),
               ("[user]", USER), ("[user]s", USER), ("\t\t \t", USER)]
    return (tokens + [s for s, _ in special], types + [t for _, t in special],
            [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]])


def read_model(path):
    try:
        import gguf
    except ImportError as e:
        print(e, file=sys.stderr)
        sys.exit(3)
    fields = gguf.GGUFReader(path).fields
    tokens, types, merges = (fields["tokenizer.ggml." + key].contents() for key in ("tokens", "token_type", "merges"))
    return tokens, types, [tuple(m.split(" ")) for m in merges]


def main():
    rng = random.Random(20)
    tokens, types, merges = train(rng) if sys.argv[1] == "-" else read_model(sys.argv[1])
    special = [t for t, kind in zip(tokens, types) if kind != NORMAL]
    alphabet = set(pre_tokenizers.ByteLevel.alphabet())
    out = bytearray()

    def integer(*values):
        for v in values:
            out.extend(struct.pack("<i", v))

    def string(s):
        s = s.encode() if isinstance(s, str) else s
        integer(len(s))
        out.extend(s)

    integer(len(tokens))
    for token, kind in zip(tokens, types):
        string(token)
        integer(kind)
    integer(len(merges))
    for left, right in merges:
        string(left + " " + right)

    integer(len(PRE))
    for name, (parts, whole) in PRE.items():
        tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges, ignore_merges=whole))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
        tokenizer.decoder = decoders.ByteLevel()
        for token, kind in zip(tokens, types):
            if kind == CONTROL:
                tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)])
            elif kind == USER:
                tokenizer.add_tokens([AddedToken(token, special=False, normalized=False)])
        texts = make_texts(rng, 4000 if name == "smollm" else 700, special)
        string(name)
        integer(len(texts))
        for text in texts:
            flags = rng.choice([0, PARSE_SPECIAL, PARSE_SPECIAL])
            tokenizer.encode_special_tokens = not flags
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            integer(flags)
            string(text)
            integer(len(ids), *ids)

    # Streams: random ids, so that characters are cut everywhere, and ids of real texts.
    byte_of = {c: b for b, c in zip(range(256), byte_characters())}
    single = [i for i, t in enumerate(tokens) if len(t) == 1 and t in alphabet]
    integer(400)
    for n in range(400):
        pool = single if n % 2 else range(len(tokens))
        ids = [rng.choice(pool) for _ in range(rng.randrange(60))]
        data = b"".join(bytes(byte_of[c] for c in tokens[i]) if types[i] == NORMAL else tokens[i].encode() for i in ids)
        integer(len(ids), *ids)
        string(data)
        string(data.decode(errors="replace"))
    with open(sys.argv[2], "wb") as f:
        f.write(out)


def byte_characters():
    """GPT-2's character for each byte."""
    extra = 256
    for b in range(256):
        if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174:
            yield chr(b)
        else:
            yield chr(extra)
            extra += 1


if __name__ == "__main__":
    main()
