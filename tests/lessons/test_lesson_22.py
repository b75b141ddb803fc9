"""Lesson 22: its exercises with right and with wrong answers."""

from answers import both


def replicas(chips, tokens, width, slices=True):
    def sent(dp):
        tp = chips / dp
        gradients = 13 * width**2 / (tp if slices else 1)
        return gradients * (dp - 1) / dp + 4 * tokens / dp * width * (tp - 1) / tp

    return min((n for n in range(1, chips + 1) if chips % n == 0), key=sent)


WRONG = {"should be 16, but is 32": lambda *sizes: replicas(*sizes, slices=False)}
test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "22.ring": ([1000, 2 / 6 * 300e12 / 100e9], {"the number of tokens is not 875": 875}),
        "22.split": ([replicas, lambda *sizes: float(replicas(*sizes))], WRONG),
    }
)
