"""The call tape."""

from tape import tape

from ttkit import ttnn


def test_a_tape_inside_another_ends_alone():
    with tape() as calls:
        with tape():
            pass  # as empty as the one around it, which goes on
        ttnn.zeros([1])
    ttnn.zeros([2])
    assert [(call["operation"], call["result"]["shape"]) for call in calls] == [("zeros", [1])]
