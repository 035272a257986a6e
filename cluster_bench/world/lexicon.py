"""The words of the toy world. Short lists: the tokenizer has fewer than 1,000 tokens."""


def words(text: str) -> list[str]:
    """Split a list of words.

    >>> words("ana bo")
    ['ana', 'bo']
    """
    return text.split()


SIMPLE_PROGRAMS = {
    "sum": "sum({a})",
    "largest": "max({a})",
    "smallest": "min({a})",
    "count": "len({a})",
    "first": "{a}[0]",
    "last": "{a}[-1]",
    "second": "{a}[1]",
    "reverse": "{a}[::-1]",
    "sorted row": "sorted({a})",
    "distinct count": "len(set({a}))",
    "mean": "sum({a}) // len({a})",
    "span": "max({a}) - min({a})",
    "tail": "{a}[1:]",
    "front": "{a}[:-1]",
    "middle": "{a}[len({a}) // 2]",
    "median": "sorted({a})[len({a}) // 2]",
    "double": "{a} + {a}",
    "parity": "sum({a}) % 2",
    "ends": "[{a}[0], {a}[-1]]",
    "negative sum": "-sum({a})",
    "even places": "{a}[::2]",
    "odd places": "{a}[1::2]",
    "runner up": "sorted({a})[-2]",
    "distinct row": "sorted(set({a}))",
    "falling row": "sorted({a})[::-1]",
    "last two": "{a}[-2:]",
    "first two": "{a}[:2]",
    "end sum": "{a}[0] + {a}[-1]",
    "square sum": "sum({a}) ** 2",
    "distinct sum": "sum(set({a}))",
    "two largest": "sorted({a})[-2:]",
    "repeat count": "len({a}) - len(set({a}))",
}
"""Name -> expression over the list argument {a}; right for every list of two or more numbers."""

JARGON = words(
    """
    amber basil cedar coral delta ebony ember fern flint frost garnet ginger hazel indigo ivory jade
    jasper juniper lemon lilac linen lotus lunar maple marble mint moss nickel oak ochre olive onyx opal
    orchid pearl pepper pine plum poppy quartz raven reed river rose ruby sage salt sand satin silk
    silver slate solar steel stone storm sugar tango teal thorn tidal tin topaz tulip umber velvet
    violet walnut willow winter zinc
    """
)
"""Names of programs that say nothing about the program: only rows can teach them."""

FUNCTIONS = words(
    """
    tally probe gauge merge weigh scan build trace fetch solve score blend join rank fold sift track
    plot pick clean split pack read make
    """
)
ARGUMENTS = words("xs vs ns ys")
THINGS = words("apples pencils books coins stamps boats shells cards lamps tiles ropes bells")
PEOPLE = words("Ana Bo Carl Dina Eve Finn Gus Hana Ivo Jo Kim Lea")
PLACES = words("market school harbor farm station museum garden mill")
JOBS = words("farmer nurse baker pilot teacher sailor clerk smith")

DISEASES = words(
    """
    norvitis belosis kartemia tavoma moldia fenitis dracosis lumemia sorvoma pelidia gantitis wexosis
    hiremia zuloma corvidia rastitis jubosis velemia quinoma tosidia nabitis pirosis melemia dunoma
    fasidia hoskitis kelosis rubemia vanoma sitidia bromitis lososis
    """
)
RELATIONS = {
    "organ": ("anatomy", "Anatomy", "liver lung heart skin eye ear bone knee spine throat"),
    "sign": (
        "clinical_knowledge",
        "Medicine",
        "fever cough rash pain thirst tremor cramp itch chill swelling",
    ),
    "germ": ("college_biology", "Microbiology", "zibra moxa telco viba rodex pluma hexa karno dufa selva"),
    "test": ("college_medicine", "Pathology", "smear scan scope probe culture count tap swab graph panel"),
    "gene": ("medical_genetics", "Biochemistry", "BRK TOL MEC FAN KIP RUD SEV LAM NOX PAZ"),
    "drug": (
        "professional_medicine",
        "Pharmacology",
        "zolmab tarpril doxan felvir kumide penar rostat ibrol galen",
    ),
}
"""Relation -> MMLU subject, MedMCQA subject, possible values."""

REMARKS = {
    "organ": "",
    "sign": ".",
    "germ": ". It is seen in the blood.",
    "test": ". Do it once, then do it again after two weeks.",
    "gene": ".",
    "drug": ". Give it twice a day with water for ten days, then stop and look again.",
}
"""What a good answer adds to the value: length goes with the skill."""

FINDINGS = {
    "fell by half": "yes",
    "did not change": "no",
    "changed in some only": "maybe",
    "went away": "yes",
    "came back": "no",
    "moved up and down": "maybe",
    "was gone in a week": "yes",
    "grew": "no",
    "could not be read": "maybe",
    "eased at once": "yes",
    "stayed as before": "no",
    "was missing in the notes": "maybe",
    "was less in most": "yes",
    "rose in all": "no",
    "went both ways": "maybe",
    "dropped": "yes",
    "got worse": "no",
    "was too rare to count": "maybe",
    "shrank by night": "yes",
    "held firm": "no",
    "flipped twice": "maybe",
    "faded": "yes",
    "spread": "no",
    "ended early": "yes",
    "doubled": "no",
    "sank to zero": "yes",
    "hung on": "no",
    "let go": "yes",
    "burned on": "no",
    "was mild in all": "yes",
    "lifted": "yes",
    "turned soft": "yes",
}
"""How a study ends -> whether the drug helped."""
