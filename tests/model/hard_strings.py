"""Strings that tokenizers get wrong: each group names what is hard about it."""

DIGITS = """0|7|42|007|1234567890|3.14159|1,000,000|v2.13.0|2024-11-29T23:41:07Z|0x7fff|1e-5|-12|+1 555 0100|a1b2c3|x 1|x  1|x   12|\
 9|9 |  99  |1 2 3|10%|$5.00|№7|H2O|1st 2nd 3rd|IPv4 192.168.0.1|12a34 b56|١٢٣|๓๔|१२३ ४५|𝟘𝟙𝟚""".split("|")

# Numbers that are not decimal digits (Nl and No): the rule cuts them off too.
OTHER_NUMBERS = "½|½ ①|Ⅻ|x² + y³|¼ cup|①②③|第Ⅳ章 ⅳ|a½b|H₂O|〇〡〢|¹⁰|1½ ٣¾|㊿ ㉑|৴ ௰".split("|")

SPACES = [
    " ", "  ", "   ", " " * 16, " " * 17, " " * 200, "\n", "\n\n", "\r\n", "\t", "\t\t x", " \n ", "a ", " a", "a  b", "a   b",
    "a \n b", "a\n\n\nb", "   lead", "trail   ", "\u00a0nbsp\u00a0", "em\u2003space", "\u3000全角", "zero\u200bwidth", "line\u2028sep",
    "\x0bvt\x0cff", "mix \t \n\r\n end", "\ufeffbom", "x\n  y\n    z", "",
]

WORDS = """Hello, world!|don't can't I'll we've they're I'd it's 'tis|DON'T I'LL|’twas don’t|naïve café façade|Straße ẞ|İstanbul ıi|Ŵŷ|\
UPPERlower|snake_case camelCase|e-mail@example.com|https://example.org/a?b=c&d=%20#e|...!?!?|—–-|«quote» „so“ “so”|C++ C# .NET|a/b\\c|\
#hash @user|[x](y) *z* **w** `v`|"q" 'r'|''s 't're|(parens) {braces} <angle>|~!@#$%^&*()_+|¡Hola! ¿Qué?|ﬁ ﬂ ﬃ|ǅ ǈ|©®™|§¶†|𝒜𝓁𝓅𝒽𝒶|ªº|µ""".split("|")

EMOJI = "😀|👍🏽|👨‍👩‍👧‍👦|🏳️‍🌈|🇩🇪🇫🇷|❤️ ❤|☃️☃|1️⃣2️⃣|😀😀😀|a😀b|😀 😀|🧑🏿‍🚀|🤷‍♀️|🀄|🂡|🪿|⌚️|©️|🫠x|🏴󠁧󠁢󠁥󠁮󠁧󠁿".split("|")

MARKS = [
    "e\u0301", "é", "a\u0308o\u0308", "Z\u0351\u036b\u0343a\u0311l\u0348g\u0315o", "\u0301", " \u0301x", "q\u0307\u0323", "क्षत्रिय",
    "สวัสดีครับ", "ที่", "שָׁלוֹם", "مُحَمَّد", "ทำ", "ﷺ", "தமிழ்", "ကျွန်တော်", "한국어", "한", "が", "か\u3099", "İ", "i\u0307",
]

CJK = "你好，世界。|日本語のテスト|ひらがなカタカナ漢字|한국어 문장입니다.|中文English混排123|「引用」『書名』|ｆｕｌｌｗｉｄｔｈ１２|𠮷野家|龘|々〆ヵ|，。！？|东京 2024年|ㄅㄆㄇ|ꀀꀁ".split("|")

OTHER_SCRIPTS = "Привет, мир!|Γειά σου Κόσμε|გამარჯობა|ⵜⴰⵎⴰⵣⵉⵖⵜ|𐍈𐌰|Ꮳ|ᚠᚢᚦ|አማርኛ|ខ្មែរ|Հայերեն|שלום עולם|مرحبا بالعالم|नमस्ते|বাংলা|𓀀𓁐|⠓⠑".split("|")

CODE = [
    "def f(x):\n    return x ** 2  # square\n", "for(int i=0;i<10;++i){a[i]=i;}", "if x!=None and not y:\n\tpass", "λ x → x + 1",
    'print("a\\n\\tb")', "SELECT * FROM t WHERE id='1';", '{"k": [1, 2.5, null, true]}', "<div class='a'>&nbsp;</div>", "#!/bin/bash\nset -e",
    "a = b if c else d", "x->y::z<T>&&", "    \n        deep\n", "1 + 1 == 2", "/* c */ // d", "r'\\d+\\s*$'", "\\begin{eq} \\frac{1}{2}",
    "```py\n>>> 1/0\n```", "@@ -1,3 +1,4 @@\n-old\n+new", "∀x∈ℝ: x²≥0", "a\\x00b", "0b1010_1010", "f(*a, **k)",
]

SPECIALS = [
    "<|im_end|>", "<|im_start|>user\nhi<|im_end|>\n", "a<|endoftext|>b", " <|im_end|> ", "<|im_end|><|im_end|>", "<|im_end|", "<|IM_END|>",
    "<|im_<|im_end|>end|>", "<repo_name>x<reponame>", "<file_sep><filename>a.py", "<issue_start><issue_comment>1", "<empty_output>\n",
    "12<|im_start|>34", "é<|im_end|>é", "<jupyter_code>1+1<jupyter_output>2", "< |im_end|>", "<gh_stars>100", "\n<|im_end|>\n",
]

ODD = ["\x00", "\x01\x02", "\x7f", "\ufffd", "\U0010ffff", "\ue000", "\uffff", "\x1b[31mred\x1b[0m", "a\x00b", "\u202ertl\u202c", "\U000f0000", "a" * 300, "ab " * 60]

ALL = DIGITS + OTHER_NUMBERS + SPACES + WORDS + EMOJI + MARKS + CJK + OTHER_SCRIPTS + CODE + SPECIALS + ODD
