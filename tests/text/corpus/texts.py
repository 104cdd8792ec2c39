"""Generated text for the tests of the corpus report: prose, binary data, HTML pages, a very long line."""

import random

SUBJECTS = "the dog|my sister|the old man|a teacher|the queen|our neighbour|the captain|a child|the doctor|nobody"
VERBS = "saw|found|wanted|remembered|forgot|carried|painted|followed|lost|described"
OBJECTS = "the house|a letter|the river|an apple|the garden|some bread|a song|the mountain|his hat|the road"
ENDS = "in the morning|before the rain|with great care|for many years|of the village|and went home|on the table|at last"
SYLLABLES = "ka|lo|mi|ren|tas|vo|del|su|pan|gi|mor|fe|lin|tu|bar|so|nek|ri|dul|ha"  # for names: rare words


def sentence(chance):
    subject, verb, thing, end = (chance.choice(words.split("|")) for words in (SUBJECTS, VERBS, OBJECTS, ENDS))
    name = "".join(chance.choice(SYLLABLES.split("|")) for _ in range(chance.randrange(2, 5)))
    return " ".join([subject, verb, thing, "of", name, end]).capitalize() + "."


def prose(documents, seed=0):
    chance = random.Random(seed)
    return [" ".join(sentence(chance) for _ in range(chance.randrange(6, 14))) for _ in range(documents)]


def binary(documents, seed=1):
    chance = random.Random(seed)
    signs = [chr(code) for code in (*range(33, 65), *range(91, 97), *range(123, 127))]
    return ["".join(chance.choice([*signs, "q", " "]) for _ in range(400)) for _ in range(documents)]


def pages(documents, seed=2):
    body = "<div class='x'><ul><li>Menu</li><li>More</li></ul></div><p>{}&nbsp;</p><p>Foot</p><br/><hr/>"
    return ["<html><body>" + body.format(text) + "</body></html>" for text in prose(documents, seed)]


def giant_line(sentences=2000, seed=3):
    chance = random.Random(seed)
    return " ".join(sentence(chance).lower().rstrip(".") for _ in range(sentences))
