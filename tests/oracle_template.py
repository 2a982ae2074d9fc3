"""Writes what Python's Jinja, set up as transformers does, makes of chat templates, for test_template.c.

    oracle_template.py MODEL OUT

The templates: that of the GGUF file MODEL; for "-" some in the style of well-known models, small ones for single
rules, and many random ones, right and wrong. OUT: count, then cases: template, prompt flag, messages (role, content),
whether it succeeds, what it writes or why it fails. Strings with their length in front; 32-bit integers. Exit status 3:
a package is missing.
"""

import json
import random
import re
import struct
import sys

try:
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError as e:
    print(e, file=sys.stderr)
    sys.exit(3)

CHATML = """{%- if messages[0]['role'] == 'system' -%}
    {%- set system = messages[0]['content'] -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set system = 'You are a helpful assistant.' -%}
    {%- set rest = messages -%}
{%- endif -%}
{{- '<|im_start|>system\\n' + system + '<|im_end|>\\n' }}
{%- if tools %}{{ raise_exception("no tools here") }}{% endif %}
{%- for message in rest %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first)
          or message.role == "assistant" and not message.tool_calls %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "tool" %}
        {%- for call in message.tool_calls %}{{ call.function | tojson }}{% endfor %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
LLAMA3 = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message goes first, so take it out. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{%- if builtin_tools is defined %}
    {{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\\n\\n" }}
{%- endif %}
{{- "Today: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'
            + message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One tool call at a time!") }}
        {%- endif %}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}
            {{- message.content | tojson(indent=4) }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined or tools is none %}{%- set tools = none %}{%- endif %}
{%- set user_messages = [] %}
{%- set ns = namespace(index=0, last=none) %}
{%- for message in loop_messages %}
    {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
        {{- raise_exception("After the optional system message, roles must alternate user/assistant/...") }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- else %}
        {{- raise_exception("Only user and assistant roles, with the exception of an initial system message!") }}
    {%- endif %}
{%- endfor %}
"""
LLAMA2 = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}\
{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}\
{% set system_message = false %}{% endif %}{% for message in loop_messages %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}\
{% if loop.index0 == 0 and system_message != false %}\
{% set content = '<<SYS>>\\\\n' + system_message + '\\\\n<</SYS>>\\\\n\\\\n' + message['content'] %}\
{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}\
{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}\
{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""
THINKING = """{% set ns = namespace(last=messages|length - 1, found=false) %}
{% for message in messages[::-1] %}
{% set index = (messages|length - 1) - loop.index0 %}
{% if not ns.found and message.role == "user" and message.content is string
      and not(message.content.startswith('<r>') and message.content.endswith('</r>')) %}
{% set ns.found = true %}{% set ns.last = index %}
{% endif %}
{% endfor %}
{{ ns.last }}|{{ ns.found }}
{% for message in messages %}
  {% set content = message.content %}
  {% if '</think>' in content %}
    {% set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
    {% set content = content.split('</think>')[-1].lstrip('\\n') %}
    {{- 'thought: ' ~ thought ~ ';' -}}
  {% endif %}
  {%+ if loop.index0 > ns.last or (not loop.last and loop.nextitem.role == 'user')
  %}{{ message.role|capitalize }}:{{ content|trim }}
  {% else %}{{ message.role.upper() }}={{
      content | default('', true) | replace('\\n', ' ') }}{{ "\\n" if not loop.last }}{% endif %}
{% endfor %}
{% set block %}
  {{ messages|length }} messages{{ eos_token -}}
{% endset %}
[{{ block|trim }}]
"""
RULES = [  # single rules: white space, loops, scopes, slices, operators, undefined names, errors
    "a\n  {% if true %}  \n b {%- if true -%} \n\n c {% endif +%}\n d\n   {% endif %} e\n",
    "{{ 1 }}\n{{ 2 -}}\n 3\n\n",
    " {# x #}\n {#- y -#} \n z",
    "{%+ if true %}\n  {%+ if true +%}\n x\n\t{% endif %}\n{% endif %}",
    "x {%- set a = 1 %} {{ a }} {{- a }} y {{ a -}} z",
    "\n\n{{ 1 }}\r\n\r{{ 2 }}\r\n",
    "{% for x in [1,2,3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}"
    "{{ loop.first }}{{ loop.last }}{{ loop.length }},{% endfor %}",
    "{% for x in [] %}a{% else %}b{% endfor %}{% for x in nope %}a{% else %}c{% endfor %}",
    "{% for c in 'aé🙂' %}[{{ c }}]{{ loop.previtem }}{{ loop.nextitem }}{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 'x'}.items() %}{{ k }}={{ v }};{% endfor %}{% for k in {'q': 1} %}"
    "{{ k }}{% endfor %}",
    "{% for a, b in [[1, 2], [3]] %}{{ a }}{% endfor %}",
    "{% for x in range(10) if x % 2 %}{{ x }}{{ loop.length }} {% if x == 5 %}{% break %}{% endif %}"
    "{% continue %}no{% endfor %}",
    "{% set x = 1 %}{% for i in [1] %}{{ x }}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}{% if true %}"
    "{% set x = 3 %}{% endif %}{{ x }}",
    "{% set n = namespace(a=1) %}{% for i in [1,2] %}{% set n.a = n.a + i %}{% set n.b = i %}{% endfor %}"
    "{{ n.a }}{{ n.b }}{{ n.c }}",
    "{% set m.a = 1 %}",
    "{{ 'abcdef'[1:3] }}{{ 'abc'[-1] }}{{ 'abc'[::-1] }}{{ 'abc'[5] }}{{ 'abc'[:-1] }}{{ 'abcdef'[4:1:-2] }}"
    "{{ ['a','b'][-3] }}{{ [1,2,3][1:]|tojson }}{{ 'aé中'[1:2] }}",
    "{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 // -2 }} {{ 2 * 3 + 4 }} {{ 2 + 3 * 4 }} {{ 10 - 2 - 3 }}"
    " {{ -2 }} {{ - 2 * 3 }}",
    "{{ 1 // 0 }}",
    "{{ 1 % 0 }}",
    "{{ 1 + 1 ~ 2 }}{{ 1 ~ 2 + 3 }}{{ 'a' ~ none ~ true ~ 1 ~ nope }}",
    "{{ 1 == true }}{{ 1 == '1' }}{{ none == nope }}{{ nope == nope2 }}{{ [1,'a'] == [1,'a'] }}"
    "{{ {'a':1} == {'a':1} }}",
    "{{ 'a' in 'cat' }}{{ 1 in [1] }}{{ 'x' not in {'x': 1} }}{{ 1 in nope }}{{ not 1 in [1] }}",
    "{{ 1 in 'a' }}",
    "{{ 1 in 1 }}",
    "{{ 'a' < 'b' }}{{ 'Z' < 'a' }}{{ 2 >= 2 }}{{ 'é' > 'z' }}",
    "{{ 1 < 'a' }}",
    "{{ 'a' + 1 }}",
    "{{ 'a' + none }}",
    "{{ nope + 'a' }}",
    "{{ nope.a }}",
    "{{ nope['a'] }}",
    "{{ nope[1:] }}",
    "{{ none.a }}{{ none['a'] }}{{ 1.a }}",
    "{{ nope() }}",
    "{{ 'a'() }}",
    "{{ nope }}{{ nope|length }}{{ nope|default('d') }}{{ ''|default('e') }}{{ ''|d('f', true) }}"
    "{{ none|default('g') }}{{ none|default('h', boolean=true) }}",
    "{{ true and 'x' }}{{ 0 or 'y' }}{{ '' or 0 or none }}{{ not '' }}{{ 1 and 2 and 3 }}{{ not not 1 }}",
    "{{ 'a' if false }}{{ 'a' if true else 'b' }}{{ 1 if 0 else 2 if 0 else 3 }}",
    "{{ 'x' is defined }}{{ nope is not defined }}{{ nope is undefined }}{{ none is none }}{{ 'a' is string }}"
    "{{ [] is iterable }}{{ {} is mapping }}{{ [] is mapping }}{{ 1 is number }}{{ true is boolean }}",
    "{{ 3 is odd }}{{ 3 is even }}{{ 3 is equalto 3 }}{{ 3 is eq(4) }}{{ true is true }}{{ 1 is true }}"
    "{{ false is false }}{{ 1 is integer }}{{ true is integer }}{{ 'a' is sequence }}"
    "{{ raise_exception is callable }}",
    "{{ 'ab' 'cd' \"e\" }}{{ \"\\t\\\\ \\' \\\" \\x41\\u00e9\\U0001F600\\q\" }}",
    "{{ ('a', 'b')[1] }}{{ ('a',)|length }}{{ () | length }}{{ (1) }}{{ [1, 2,][1] }}{{ {'a': {'b': 2}}.a.b }}"
    "{{ {'a': 1}['a'] }}{{ [[1,2],[3]].1.0 }}",
    "{{ ' a b '.strip() }}|{{ ' a '|trim }}|{{ 'xxaxx'.strip('x') }}|{{ 'xya'.lstrip('yx') }}|"
    "{{ 'a\\n\\n'.rstrip('\\n') }}|{{ 'éaé'|trim('é') }}|{{ '\u2003a\u00a0\\x1c'.strip() }}",
    "{{ 'a,b,,c'.split(',')|tojson }}{{ ' a  b '.split()|tojson }}{{ 'a b c'.split(' ', 1)|tojson }}"
    "{{ ' a b c '.split(none, 1)|tojson }}{{ ''.split()|tojson }}{{ ''.split(',')|tojson }}"
    "{{ 'a,'.split(',')|tojson }}",
    "{{ 'a'.split('') }}",
    "{{ 'aXbX'.replace('X', 'yy') }}{{ 'aaa'|replace('a', 'b', 2) }}{{ 'aaa'.replace('a', '', 1) }}"
    "{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'bc')) }}",
    "{{ 'hELLO wORLD-foo (bar) it\\'s'|capitalize }}{{ 'hELLO wORLD-foo (bar) it\\'s 1st'|title }}"
    "{{ 'hELLO wORLD-foo it\\'s 1st'.title() }}{{ 'éÉ'.upper() }}{{ 'ÄÖ'|lower }}{{ 'äb'.capitalize() }}",
    "{{ 'a\\n\"\\\\\\t\\x01é🙂/<>&\\x7f'|tojson }}{{ [1, true, none, 'a', {'k': []}]|tojson }}"
    "{{ {'a': [1, {'b': 2}], 'c': {}}|tojson(indent=2) }}{{ nope|tojson }}",
    "{{ [1,[2,3],{}]|tojson(false, 4) }}",
    "{{ [1,2]|first }}{{ 'abc'|last }}{{ []|first }}{{ [1,'a',none]|join('-') }}{{ 'abc'|join('.') }}"
    "{{ ','.join(['a','b']) }}{{ 'ab'|list|length }}{{ 5|string + 'x' }}{{ 'abc'|count }}"
    "{{ {'a':1}|items|list|length }}",
    "{{ ','.join([1]) }}",
    "{{ 1|length }}",
    "{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('b') }}{{ {'a': 1}.get('b', 'c') }}{{ {'a':1}.keys()|join }}"
    "{{ {'a':7}.values()|join }}{{ {'a': 1}.b }}",
    "{{ range(3)|join }}{{ range(1,4)|join }}{{ range(5,0,-2)|join }}{{ range(0)|join }}",
    "{{ range(1,2,0)|join }}",
    "{{ range(200000)|length }}",
    "{% set a %} x {{ 1 }}{% set b = 2 %} {% endset %}[{{ a }}]{{ b }}{{ a|length }}",
    "{{ '}}' }}{{ '%}' }}{{ {'a': {'b': 1}}['a']['b'] }}{% if '%}' == \"%}\" %}y{% endif %}",
    "{{ [messages|length, bos_token]|tojson }}",
    "{% if 1 %}a",
    "{% endif %}",
    "{% if %}a{% endif %}",
    "{{ 1 + }}",
    "{{ (1 }}",
    "{{ 'a }}",
    "{{ }}",
    "{{ a b }}",
    "{% for in x %}{% endfor %}",
    "{% foo %}",
    "{% if 1 %}{% else %}{% else %}{% endif %}",
    "{# open",
    "{{ open",
    "{% set x %}",
    "{% break %}",
    "{{ 1 if }}",
    "{{ x[ }}",
    "{{ x[] }}",
    "{{ {'a' 1} }}",
    "{{ a. }}",
    "{{ a| }}",
    "{{ a is }}",
    "{{ not }}",
    "{{ ! }}",
    "{% for a, b %}{% endfor %}",
    "{% for a in b %}{% endif %}",
    "}} %} #} { { {",
    "{{ raise_exception('no ' + 'é') }}",
    "{{ {1} }}",
    "{% for m in messages %}{{ m.role }}{{ m['content'] }}{{ m.nope }}{{ loop.index is odd }}\n{% endfor %}",
    "",
    " ",
    "\n",
    "\n\n",
    "plain { text } % #",
]


# Random templates are grown from these: <s> is a string, <i> an integer, <b> a bool, <l> a list, <a> any of the first
# three or what may be undefined <u>, <o> a comparison, <n> a small number. <p> is what only a loop has.
GROW = {
    "s": [
        "<s> + <s>",
        "<a> ~ <a>",
        "(<s>)|trim",
        "(<s>).strip()",
        "(<s>)[<i>]|string",
        "(<s>)[<i>:]",
        "(<s>)[:<i> - 2]",
        "(<s>)[::-1]",
        "(<s>)[<i>:<i>:<n>]",
        "(<s>).split('a')[-1]",
        "(<s>).split(' ')[0]",
        "(<s>).split('X')[<i>]|string",
        "<s> if <b> else <s>",
        "(<s> if <b>)|string",
        "(<s>)|replace('X', <s>)",
        "(<l>)|tojson",
        "(<s>) | tojson",
        "(<u> or nope) | default(<s>)",
        "(<s>)|upper",
        "((<s>)|list)|join(<s>)",
        "(<a>)|string",
        "((<s>) or <s>)",
        "(<s>).rstrip('\\n ')",
        "(<s>)|title",
        "(<s>).lower()",
    ],
    "i": [
        "<i> + <i>",
        "<i> - <i>",
        "<i> * <i>",
        "<i> // <n>",
        "<i> % <n>",
        "(<s>)|length",
        "(<l>)|count",
        "-(<i>)",
        "(<i> if <b> else <i>)",
        "range(<i>)|length",
    ],
    "b": [
        "(<i> <o> <i>)",
        "(<s> <o> <s>)",
        "(<a> == <a>)",
        "not <b>",
        "(<b> and <b>)",
        "(<b> or <a>)|default(1)",
        "(<s> in <s>)",
        "(<a> not in <l>)",
        "(<s>).startswith(<s>)",
        "<u> is defined",
        "<u> is not none",
        "<u> is string",
        "<u> is mapping",
        "<u> is iterable",
        "(<a>) is number",
        "(<i> is odd)",
        "(<l> == <l>)",
        "('role' in m)",
    ],
    "l": [
        "[<a>, <s>]",
        "(<l>)[<i>:]",
        "(<s>).split()",
        "(<s>)|list",
        "(<l> + <l>)",
        "(range(<i>, <i>)|list)",
        "(<l>)[::-1]",
        "[<l>, {'k': <a>}]",
        "(<l> if <b> else [])",
        "(<l>)[<i>::<n>]",
    ],
}
LEAVES = {
    "s": [
        "'a'",
        "'b c'",
        "' '",
        "''",
        "'x\\n y '",
        "'éñ中🙂'",
        "'aXbXc'",
        '"q\\"t"',
        "'ÄöИж'",
        "m.content",
        "m['role']",
        "x",
        "eos_token",
    ],
    "i": ["0", "1", "2", "3", "4", "y", "messages|length", "<p>"],
    "b": ["true", "false", "add_generation_prompt", "z is defined", "<p>"],
    "l": ["messages", "[1, 'a', none]", "'a b'.split()", "range(3)|list", "[]"],
    "u": ["nope", "none", "bos_token", "x", "y", "z", "ns.v", "m.content", "m.nope", "messages[9]"],
    "o": ["==", "!=", "<", "<=", ">", ">="],
    "n": ["1", "2", "3", "-1", "-2", "-3", "1", "2", "0"],
    "p": ["loop.first", "loop.last", "loop.index", "loop.index0", "loop.revindex", "loop.length"],
}
BEGIN = "{% set ns = namespace(v=1) %}{% set x = 'X y' %}{% set y = 2 %}{% set m = {'role': 'r', 'content': 'C\\n'} %}"


class Generator:
    def __init__(self, rng):
        self.rng, self.loops = rng, 0

    def expr(self, kind, depth):
        if kind == "a":
            kind = self.rng.choice("sssssiiiibbbu")
        if kind == "p" and not self.loops:
            return "1"
        form = self.rng.choice(GROW[kind] if depth > 0 and kind in GROW else LEAVES[kind])
        return re.sub("<([a-z])>", lambda m: self.expr(m[1], depth - 1), form)

    def tag(self, inside, kind="%"):
        signs = ["", "", "-", "+"] if kind == "%" else ["", "", "-"]
        end = "%}" if kind == "%" else "}}"
        return "{" + end[0].replace("}", "{") + self.rng.choice(signs) + f" {inside} " + self.rng.choice(signs) + end

    def text(self):
        return "".join(
            self.rng.choices(
                ["a", " ", "\n", "  ", "\n\n", "\t", "é", "|", "{ ", " }", "% ", "a"]
                + ["{"] * (self.rng.randrange(30) == 0),
                k=self.rng.randrange(5),
            )
        )

    def body(self, depth):
        return "".join(self.text() + self.statement(depth) for _ in range(self.rng.randrange(1, 4))) + self.text()

    def statement(self, depth):
        rng, tag, expr = self.rng, self.tag, self.expr
        kind = rng.randrange(9 if depth else 4)
        if kind < 2:
            return tag(expr("a", 3), "}")
        if kind == 2:
            name, value = rng.choice([("x", "s"), ("y", "i"), ("z", "a"), ("z", "l"), ("ns.v", "a")])
            return tag(f"set {name} = {expr(value, 2)}")
        if kind == 3:
            if self.loops and rng.randrange(2):
                return tag(rng.choice(["break", "continue"]))
            return rng.choice(["{# c #}", "{#- c -#}", "{# c #}\n"])
        if kind < 6:
            out = tag("if " + expr(rng.choice("bbas"), 2)) + self.body(depth - 1)
            if rng.randrange(3) == 0:
                out += tag("elif " + expr("b", 2)) + self.body(depth - 1)
            if rng.randrange(2):
                out += tag("else") + self.body(depth - 1)
            return out + tag("endif")
        loops = self.loops
        if kind < 8:
            name, over = rng.choice(
                [
                    ("m", "messages"),
                    ("m", "messages[::-1]"),
                    ("x", "['p', 'q r']"),
                    ("z", expr("l", 2)),
                    ("y", "range(3)"),
                ]
            )
            self.loops = 0
            condition = " if " + expr("b", 1) if rng.randrange(4) == 0 else ""
            self.loops = loops + 1
            out = tag(f"for {name} in {over}{condition}") + self.body(depth - 1)
            self.loops = loops
            if rng.randrange(4) == 0:
                out += tag("else") + self.body(depth - 1)
            return out + tag("endfor")
        self.loops = 0
        out = tag("set x") + self.body(depth - 1) + tag("endset")
        self.loops = loops
        return out


def environment():
    def raise_exception(message):
        raise ValueError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def main():
    rng = random.Random(7)
    env = environment()
    talks = [
        [("user", "Hello, who are you?")],
        [
            ("system", " You are terse.\n"),
            ("user", "Hi <|im_end|> 你好 👋"),
            ("assistant", "Yes?\n\n"),
            ("user", "  Go on. "),
        ],
        [("user", "a"), ("user", "b")],
        [("user", "q"), ("assistant", "<think>\nhm\n</think>\n\nanswer"), ("user", "<r>x</r>"), ("tool", "[1]")],
        [("system", "only")],
        [],
    ]
    templates = [CHATML, LLAMA3, MISTRAL, LLAMA2, THINKING] + RULES
    if sys.argv[1] != "-":
        try:
            import gguf
        except ImportError as e:
            print(e, file=sys.stderr)
            sys.exit(3)
        templates = [gguf.GGUFReader(sys.argv[1]).fields["tokenizer.chat_template"].contents()]
    cases = [(t, talk, prompt) for t in templates for talk in talks for prompt in (False, True)]
    generator = Generator(rng)
    if sys.argv[1] == "-":
        cases += [(BEGIN + generator.body(3), rng.choice(talks), rng.randrange(2)) for _ in range(1500)]

    out = bytearray(struct.pack("<I", len(cases)))

    def string(s):
        s = s.encode()
        out.extend(struct.pack("<I", len(s)) + s)

    right = 0
    for template, talk, prompt in cases:
        names = {
            "bos_token": "<s>",
            "eos_token": "</s>",
            "add_generation_prompt": bool(prompt),
            "tools": None,
            "documents": None,
        }
        messages = [{"role": role, "content": content} for role, content in talk]
        try:
            text, good = env.from_string(template).render(messages=messages, **names), 1
        except Exception as e:
            text, good = f"{type(e).__name__}: {e}", 0
        right += good
        string(template)
        out.extend(struct.pack("<II", prompt, len(talk)))
        for role, content in talk:
            string(role)
            string(content)
        out.extend(struct.pack("<I", good))
        string(text)
    print(f"{len(cases)} cases, Jinja accepts {right}")
    with open(sys.argv[2], "wb") as f:
        f.write(out)


if __name__ == "__main__":
    main()
