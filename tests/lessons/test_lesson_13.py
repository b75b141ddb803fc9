"""Lesson 13: its exercise with right and with wrong answers."""

from answers import both


def bytes_per_parameter(stage, chips, precision):
    weight, grad, state = {"float32": (4, 4, 8), "bfloat16": (2, 2, 12)}[precision]
    cuts = [chips if stage >= at else 1 for at in (3, 2, 1)]
    return weight / cuts[0] + grad / cuts[1] + state / cuts[2]


def smallest(parameters, groups, parts, precision, room, needs=bytes_per_parameter):
    for stage in range(4):
        if parameters / parts * needs(stage, groups, precision) <= room:
            return stage


def by_a_table(parameters, groups, parts, precision, room):
    wide, n = precision == "float32", groups
    table = [16, (8 if wide else 4) + (8 if wide else 12) / n]
    table += [4 + 12 / n if wide else 2 + 14 / n, 16 / n]
    return next((i for i, each in enumerate(table) if each * parameters <= room * parts), None)


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "13.smallest": (
            [smallest, by_a_table],
            {
                "that one fits, but a smaller stage fits, too": lambda *a: 3,
                "ZeRO divides over the 4 replicas only": lambda p, g, t, *more: smallest(
                    p / t, g * t, 1, *more
                ),
                "returned nothing": lambda *a: None,
            },
        )
    }
)
