"""What is usually written in several ways is found by each: acronyms, signs, letters of many scripts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from rag.corpus import Language
from rag.store.read.strict_reader import Asker, strict_reader
from rag.store.read.word_analysis import query_terms, query_words, terms_of, words_in_text
from rag.store.read.words_in_memory import counted_rows, score_rows, words_of
from tests.tables import table_of

pytestmark = pytest.mark.anyio

ALL = "(true)"


def _table(lines: str) -> list[tuple[str, ...]]:
    """The rows of a table whose cells `|` separates."""
    return [tuple(cell.strip() for cell in line.split("|")) for line in lines.splitlines() if line]


def _scores(query: str, texts: Sequence[str], language: Language) -> list[float]:
    """The BM25 scores of texts, among others that have none of the query's words."""
    rows = words_of(pa.array([terms_of(text, language) for text in (*texts, *["..."] * 8)]))
    scores = score_rows(rows, query_words(query, [language]), counted_rows(rows))
    return [float(score) for score in scores[: len(texts)]]


async def _found(small_desk: ModuleType, data: Path, texts: Sequence[str], query: str) -> list[list[str]]:
    """What a desk of these texts finds, best first: by its index, and by the words of readable rows."""
    async with await small_desk.writing(data) as writer:
        await writer.replace([small_desk.new_source(writer, str(at), text) for at, text in enumerate(texts)])
        await writer.finish()
    opened = await table_of(data)
    strict = await strict_reader(opened, Asker(ALL, lambda _: True, "", "anybody"))
    rankings = [await lists.sparse(query, 9, ALL) for lists in (opened, strict)]
    return [[scored.stored.chunk.text for scored in ranking] for ranking in rankings]


ACRONYMS = """
What does WHO recommend? | The WHO recommends salt. | People who recommend salt.
who leads the WHO | the WHO leads | who leads, and who follows
US sanctions | sanctions of the US | sanctions against us
sanctions of the U.S. | US sanctions | sanctions against us
US-led sanctions | led by the US: sanctions | sanctions led by us
IT support | Ask IT for support. | Ask for support if it breaks.
IT support | IT-Support | it-support
how is IT organised | IT is organised in teams | it is organised in teams
What is IT? | IT means computers | it means nothing
the WHO's report | the report of the WHO | the report, who writes it
AS numbers | an AS has numbers | as numbers go
AT commands | modems take AT commands | at commands of others
AM receivers | receivers of AM | I am one of the receivers
IS auditors | auditors of an IS | he is one of the auditors
treatment of ALS | ALS has no treatment | treatment als solche
TO tickets | tickets of the TO | tickets to ride
bei der WHO | die Empfehlung der WHO | whoever, who
Was macht das MIT? | ein Labor am MIT | ein Labor mit Fenster
ein MAN Motor | der Motor von MAN | der Motor, den man hat
AN-Verträge | Verträge für AN | Verträge an ihn
ER in der Klinik | die ER der Klinik | er ist in der Klinik
WHO建议 | WHO 的建议 | who 建议
"""


@pytest.mark.parametrize(("query", "meant", "unlike"), _table(ACRONYMS))
def test_an_acronym_is_a_word_and_one_in_capitals_comes_first(query: str, meant: str, unlike: str) -> None:
    first, second = _scores(query, [meant, unlike], "none" if "建" in query else "English")
    assert first > second


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("WHAT IS IT", "WHAT IS IT"),
        ("WHO LEADS IT", "LEADS"),
        ("which are NOT allowed", "allowed"),
        ("cats OR dogs AND birds", "cats dogs birds"),
        ("Who leads it", "leads"),
        ("Is it THE pendulum?", "pendulum?"),
    ],
)
def test_stop_words_in_capitals_are_dropped_where_all_is_or_they_are_only_emphasized(
    query: str, expected: str
) -> None:
    assert query_terms(query, ["English"]) == expected.split()


@pytest.mark.parametrize("text", ["WHO IS WHO", "HOW IT WORKS\nRead this.", "whose, if it is", "IT_IS_NULL"])
def test_a_text_in_capitals_or_in_small_letters_has_no_acronyms(text: str) -> None:
    assert "^" not in terms_of(text, "English")


@pytest.mark.parametrize(
    ("query", "acronyms"),
    [("What does WHO say?", ["WHO"]), ("who says US", ["US"]), ("WHO IS IT", []), ("PD-1 is C#", [])],
)
def test_a_word_of_a_query_tells_whether_it_is_an_acronym(query: str, acronyms: Sequence[str]) -> None:
    assert [word.text for word in query_words(query, ["English"]) if word.is_acronym] == acronyms


def test_an_acronym_lengthens_a_text_once() -> None:
    assert terms_of("The WHO and the WHO, who met", "none") == "the who and the who who met who^"


async def test_a_desk_puts_an_acronym_before_a_stop_word(tmp_path: Path, small_desk: ModuleType) -> None:
    texts = ["those who recommend, and who don't", "salt, as the WHO writes", "else"]
    for ranking in await _found(small_desk, tmp_path, texts, "salt by WHO"):
        assert ranking == [texts[1], texts[0]]


SIGNS = """
§ 5 | Näheres in § 5 des Gesetzes | Näheres auf 5 Seiten des Gesetzes
§5 | Näheres in § 5 des Gesetzes | Näheres auf 5 Seiten des Gesetzes
§ 5 Abs. 2 BGB | nach §5 Abs. 2 BGB | nach Abs. 5 in 2 BGB
§ 312g | der § 312 g und §312g | der 312 und ein g
§§ 5, 6 | siehe §5 und 6 | siehe 5 und 6
Art. 5 | as Article 5 says | as 5 people say
Artikel 5 | nach Art. 5 | nach 5 Jahren
Article 5a | under Art. 5a | under 5 a
5 % | grows by 5% | grows by 5 mm
5% | grows by 5 percent | grows by 5 m
5 per cent | grows by 5 % | grows by 5 cm
5 Prozent | steigt um 5 % | steigt um 5 m
3,5 % | steigt um 3.5% | steigt um 3.5 m
€ 100 | costs 100 € | costs 100 g
100 Euro | kostet 100€ | kostet 100 g
EUR 1.000 | kostet 1000 € | kostet 1.000 g
$1,000 | a fee of US$ 1000 | a fee of 1000 points
£20 | a fee of £ 20 | a fee of 20 points
20 °C | at 20°C in C | at 20 in C
20 ℃ | at 20 °C in C | at 20 in C
issue #12 | fixes #12 for one issue | fixes 12 of one issue
＃12 | fixes #12 | fixes 12
"""


@pytest.mark.parametrize(("query", "meant", "unlike"), _table(SIGNS))
def test_a_number_with_its_sign_comes_before_the_number(query: str, meant: str, unlike: str) -> None:
    first, second = _scores(query, [meant, unlike], "English")
    assert first > second > 0


@pytest.mark.parametrize(
    ("code", "terms"),
    [
        ("echo $1 $HOME", "echo 1 home"),
        ("i = 5 % 3", "i 5 3"),
        ("color: #123456; #fff", "color 123456 fff"),
        ("&#12; 3%20 [9]$", "12 3 20 9"),
        ("# 12 things", "12 things"),
        ("cost $ and %", "cost and"),
    ],
)
def test_signs_of_code_are_no_words(code: str, terms: str) -> None:
    assert terms_of(code, "none") == terms


@pytest.mark.parametrize(
    ("first", "second"),
    [("§ 5", "§ 51"), ("5 %", "5 €"), ("#12", "#123"), ("$100", "€100"), ("20 °C", "20 %")],
)
def test_other_signs_and_numbers_are_other_words(first: str, second: str) -> None:
    signed = {term for word in query_words(first, ["none"]) for form in word.forms for term in form}
    plain = {term for term in signed if term.isalnum()}
    assert signed - plain
    assert not (signed - plain) & set(terms_of(second, "none").split())


@pytest.mark.slow
async def test_a_desk_puts_a_number_with_its_sign_first(tmp_path: Path, small_desk: ModuleType) -> None:
    texts = ["5 chairs and 5 tables", "the chairs of § 5", "5% chairs", "else"]
    for query, first in (("§5", texts[1]), ("5 percent", texts[2])):
        for ranking in await _found(small_desk, tmp_path / query[-1], texts, query):
            assert (ranking[0], len(ranking)) == (first, 3)


def _has(query: str, text: str, language: Language = "none") -> bool:
    """Whether a text has every word of a query in some form."""
    words = query_words(query, [language])
    assert words
    return words_in_text(words, text, language) == {*words}


CHINESE = """
用戶 | 用户
用戶手冊 | 用户手册
網絡連接 | 网络连接
電話號碼 | 电话号码
銀行帳戶 | 银行账户
請假規定 | 请假规定
員工宿舍 | 员工宿舍
醫療保險 | 医疗保险
學習機器 | 学习机器
圖書館開放時間 | 图书馆开放时间
營業執照 | 营业执照
環境保護 | 环境保护
會議紀要 | 会议纪要
財務報銷 | 财务报销
臺灣 | 台湾
頭髮 | 头发
發展 | 发展
乾燥 | 干燥
後來 | 后来
裡面 | 里面
體檢 | 体检
龍門陣 | 龙门阵
"""


@pytest.mark.parametrize(("traditional", "simplified"), _table(CHINESE))
def test_chinese_is_found_in_traditional_and_in_simplified_characters(
    traditional: str, simplified: str
) -> None:
    for query, written in ((traditional, simplified), (simplified, traditional)):
        assert _has(query, f"關於{written}。" if written == traditional else f"关于{written}。")


@pytest.mark.parametrize(
    ("query", "text"), [("用戶", "客户"), ("電話", "电视"), ("學習", "复习"), ("醫院", "法院")]
)
def test_other_chinese_words_are_others(query: str, text: str) -> None:
    assert not _has(query, text)


def test_words_of_chinese_that_are_cut_in_two_ways_have_both_and_are_as_written() -> None:
    words = query_words("會議室予約", ["none"])
    assert "".join(word.text for word in words) == "會議室予約"
    assert all("".join(form) in "会议室予约" for word in words for form in word.forms)


def test_japanese_is_cut_by_its_own_characters() -> None:
    assert terms_of("開発環境のユーザー", "none").split()[:2] == ["开発", "环境"]
    assert _has("開発環境", "開発環境のユーザーです。")
    assert _has("有給休暇", "有給休暇の申請について")


@pytest.mark.slow
async def test_a_desk_finds_chinese_in_both_kinds_of_characters(
    tmp_path: Path, small_desk: ModuleType
) -> None:
    texts = ["用戶可以在設定中修改電話號碼。", "用户可以在设置中修改电话号码。", "else"]
    for at, query in enumerate(("用户的电话号码", "用戶的電話號碼")):
        for ranking in await _found(small_desk, tmp_path / str(at), texts, query):
            assert {*ranking} == {*texts[:2]}


HEBREW = """
שָׁלוֹם | שלום
שָׁלוֹם עוֹלָם | שלום עולם
בְּרֵאשִׁית בָּרָא אֱלֹהִים | בראשית ברא אלהים
בית־ספר | בית ספר
בֵּית־הַסֵּפֶר | בית הספר
תל־אביב | תל אביב
צה״ל | צהל
צה"ל | צה״ל
ארה"ב | ארהב
דו״ח | דוח
דו"חות | דוחות
עו״ד | עו"ד
מע"מ | מעמ
ת״א | תא
ג׳ירפה | גירפה
צ'ק | צ׳ק
ז׳קט | ז'קט
וכו׳ | וכו
שּׁ | ש
יִשְׂרָאֵל | ישראל
"""
ARABIC = """
مُحَمَّد | محمد
كتــاب | كتاب
كِتَابٌ | كتاب
أحمد | احمد
إدارة | ادارة
آخر | اخر
مدرسة | مدرسه
مستشفى | مستشفي
على | علي
١٢٣ | 123
٣٫١٤ | 3.14
٥٪ | 5%
ﻛﺘﺎﺏ | كتاب
سنة ١٤٤٥ | سنة 1445
کتاب | كتاب
یک | يك
ایران | إيران
۱۲۳ | 123
۲۰۲۳ | ٢٠٢٣
می‌خواهم | میخواهم
می‌خواهم | می خواهم
کتاب‌ها | کتابها
نیم‌فاصله | نیم فاصله
خانهٔ | خانه
ۀ | ه
"""
ARABIC_WITH_ARTICLE = """
المدرسة | المدرسه
المدرسة | مدرسه
بالسيارة | السياره
للجامعة | الجامعه
السنوية | السنويه
الوجه | وجه
المياه | مياه
"""
KANA = """
ｻｰﾊﾞｰ | サーバー
サーバー | サーバ
コンピューター | コンピュータ
ユーザー | ユーザ
ﾌﾟﾘﾝﾀｰ | プリンタ
データー | データ
ＡＢＣ１２３ | ABC123
ＰＤＦファイル | PDFファイル
ｱｲｽｸﾘｰﾑ | アイスクリーム
りんご | リンゴ
みかん | ミカン
さくら | サクラ
たばこ | タバコ
ねこ | ネコ
メガネ | めがね
㈱ | (株)
㌔ | キロ
２０２３年 | 2023年
１００％ | 100%
ｶﾞｿﾘﾝ | ガソリン
मार्च २०२३ | मार्च 2023
"""
APOSTROPHES = """
обов’язки | обов'язки
обов’язки | обовʼязки
обов'язки | обов`язки
обов’язки | обов′язки
обов’язки | обов‘язки
обов’язки | обовязки
пʼятниця | п'ятниця
п’ятниця | пятниця
здоровʼя | здоров’я
об'єкт | обʼєкт
комп’ютер | комп´ютер
ПʼЯТНИЦЯ | п'ятниця
l`école | l’école
n´est | n'est
O‘Neill | O’Neill
Oʻzbekiston | O'zbekiston
"""


@pytest.mark.parametrize(("first", "second"), _table(HEBREW + ARABIC + KANA + APOSTROPHES))
def test_letters_that_are_written_in_two_ways_are_found_by_each(first: str, second: str) -> None:
    for query, written in ((first, second), (second, first)):
        assert _has(query, f"{written}")
        assert _has(query, f"1. {written} (a)")


@pytest.mark.parametrize(("first", "second"), _table(ARABIC + ARABIC_WITH_ARTICLE))
def test_letters_that_are_written_in_two_ways_are_found_where_arabic_is_stemmed_too(
    first: str, second: str
) -> None:
    assert _has(first, second, "Arabic")
    assert _has(second, first, "Arabic")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("שלום", "שלומית"),
        ("צה״ל", "צה ל"),
        ("كتاب", "كاتب"),
        ("می‌خواهم", "می گویم"),
        ("۱۲", "۱۲۳"),
        ("キー", "キ"),
        ("バス", "ハス"),
        ("コート", "コード"),
    ],
)
def test_other_words_of_these_scripts_are_others(query: str, text: str) -> None:
    assert not _has(query, text)


def test_a_word_of_a_query_is_shown_as_it_is_written() -> None:
    assert [word.text for word in query_words("کتاب مدرسة サーバー 用戶", ["none"])] == [
        "کتاب",
        "مدرسة",
        "サーバー",
        "用戶",
    ]


@pytest.mark.slow
async def test_a_desk_finds_them(tmp_path: Path, small_desk: ModuleType) -> None:
    texts = ["שָׁלוֹם לְצה״ל", "می‌خواهم کتاب ۱۲", "ｻｰﾊﾞｰを再起動する", "else"]
    for at, query in enumerate(("שלום צהל", "ميخواهم كتاب 12", "サーバの再起動")):
        for ranking in await _found(small_desk, tmp_path / str(at), texts, query):
            assert ranking[:1] == [texts[at]]


UNSPACED = """
น้ำดื่ม | บริษัทมีน้ำดื่มให้พนักงานทุกชั้น
รหัสผ่าน | ผู้ใช้สามารถเปลี่ยนรหัสผ่านได้ที่หน้าแรก
สำนักงานใหญ่ | สำนักงานใหญ่อยู่ที่กรุงเทพ
ลาป่วย | นโยบายการลาป่วยของพนักงาน
ลาพักร้อน | พนักงานมีสิทธิลาพักร้อนปีละสิบวัน
ใบเสร็จ | ต้องแนบใบเสร็จรับเงินทุกครั้ง
โรงพยาบาล | ไปโรงพยาบาลที่ใกล้ที่สุด
ประกันสังคม | นายจ้างต้องจ่ายเงินประกันสังคม
เงินเดือน | เงินเดือนจะจ่ายทุกสิ้นเดือน
ทำงาน | เวลาทำงานคือเก้าโมงเช้า
ที่บ้าน | อนุญาตให้ทำงานที่บ้านได้
คอมพิวเตอร์ | ห้ามนำคอมพิวเตอร์ออกนอกอาคาร
การประชุม | รายงานการประชุมครั้งที่สอง
ห้องประชุม | จองห้องประชุมล่วงหน้า
ลูกค้า | ข้อมูลของลูกค้าเป็นความลับ
สัญญาจ้าง | สัญญาจ้างมีอายุหนึ่งปี
ภาษาไทย | เอกสารนี้เขียนเป็นภาษาไทย
ปี ๒๕๖๖ | งบประมาณปี 2566
น้ํา | ค่าน้ำและค่าไฟ
นํ้า | ค่าน้ำและค่าไฟ
เว็บไซต์ | ดูได้จากเว็บไซต์ของเรา
Excel | เปิดไฟล์ Excel ก่อน
ពាក្យសម្ងាត់ | អ្នកប្រើអាចប្តូរពាក្យសម្ងាត់បាន
បុគ្គលិក | ការឈប់សម្រាករបស់បុគ្គលិក
ឈប់សម្រាក | ការឈប់សម្រាករបស់បុគ្គលិក
កម្ពុជា | រដ្ឋធម្មនុញ្ញនៃព្រះរាជាណាចក្រកម្ពុជា
ប្រាក់ខែ | ប្រាក់ខែរបស់និយោជិត
មន្ទីរពេទ្យ | ទៅមន្ទីរពេទ្យដែលនៅជិត
សាលារៀន | សាលារៀននៅភ្នំពេញ
ភ្នំពេញ | សាលារៀននៅភ្នំពេញ
ភាសាខ្មែរ | ឯកសារនេះសរសេរជាភាសាខ្មែរ
កិច្ចសន្យា | កិច្ចសន្យាការងារមានរយៈពេលមួយឆ្នាំ
អ៊ីនធឺណិត | តភ្ជាប់ទៅអ៊ីនធឺណិត
ឆ្នាំ ២០២៣ | ថវិកាឆ្នាំ 2023
ນ້ຳ | ຄ່ານ້ຳ ແລະ ຄ່າໄຟ
ລາຍງານ | ລາຍງານປະຈຳປີ
ဥပဒေ | မြန်မာနိုင်ငံ အလုပ်သမား ဥပဒေ
အလုပ်သမား | မြန်မာနိုင်ငံ အလုပ်သမား ဥပဒေ
"""


@pytest.mark.parametrize(("query", "text"), _table(UNSPACED))
def test_words_of_scripts_without_spaces_are_found_in_sentences(query: str, text: str) -> None:
    assert _has(query, text)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("ที่", "ตีกลอง"),
        ("น้ำ", "นี้และนั่น"),
        ("ใหญ่", "ใหม่"),
        ("ខែ", "ខេត្ត"),
        ("ប្រាក់", "ប្រទេស រាក់"),
        ("ไม่", "ไม้"),
        ("ลาป่วย", "ป่วยลา"),
    ],
)
def test_words_with_other_marks_are_others(query: str, text: str) -> None:
    assert not _has(query, text)


@pytest.mark.slow
async def test_a_desk_finds_thai_and_khmer(tmp_path: Path, small_desk: ModuleType) -> None:
    texts = ["ค่าน้ำและค่าไฟ", "นี้และนั่น", "ប្រាក់ខែរបស់និយោជិត", "ប្រទេសកម្ពុជា"]
    for at, (query, text) in enumerate((("ค่าน้ำ", texts[0]), ("น้ำ", texts[0]), ("ប្រាក់ខែ", texts[2]))):
        for ranking in await _found(small_desk, tmp_path / str(at), texts, query):
            assert ranking == [text]
