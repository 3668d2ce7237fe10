"""Lesson 20: the days of a run, the FLOPs utilization, FLOPs per byte."""

from distlab.turns.turn import Turn

DAYS = Turn(
    lesson="20",
    name="days",
    answer="""
def days(parameters, tokens, gpus, flops_each):
    flops = (2 + 4) * parameters * tokens
    return flops / (gpus * flops_each) / 86400
""",
    right="Forward 2 and backward 4 FLOPs, for each parameter and each token.",
    mistakes={
        """
def days(parameters, tokens, gpus, flops_each):
    return 2 * parameters * tokens / (gpus * flops_each) / 86400
""": "That's the forward pass. Training goes back as well, at twice the price.",
        """
def days(parameters, tokens, gpus, flops_each):
    return 6 * parameters * tokens / flops_each / 86400
""": "That's one GPU. All of them work at the same time.",
        """
def days(parameters, tokens, gpus, flops_each):
    return 6 * parameters * tokens / (gpus * flops_each) / 3600
""": "Those are hours.",
    },
    otherwise="FLOPs per parameter and token, forward and backward, over the FLOPs that all GPUs do in a day.",
    cases=[(1e9, 2e10, 8, 1e14), (1.75e11, 3e11, 1024, 1.4e14)],
)
MFU_OF = Turn(
    lesson="20",
    name="mfu",
    answer="""
def find_mfu(flops_per_example, batch, step_seconds, peak):
    return flops_per_example * batch / step_seconds / peak
""",
    right="What the step really computes in a second, over what the device could.",
    mistakes={
        """
def find_mfu(flops_per_example, batch, step_seconds, peak):
    return flops_per_example / step_seconds / peak
""": "A step computes a whole batch, so this is too small by that factor.",
        """
def find_mfu(flops_per_example, batch, step_seconds, peak):
    return peak * step_seconds / (flops_per_example * batch)
""": "Upside down: that says how many times slower than the peak it is.",
        """
def find_mfu(flops_per_example, batch, step_seconds, peak):
    return flops_per_example * batch * step_seconds / peak
""": "FLOPs per second: divide by the seconds.",
    },
    otherwise="FLOPs of a step, over its seconds, over the peak: a number between 0 and 1.",
    cases=[(24.5e9, 256, 0.0634, 989e12), (1e6, 64, 0.01, 1e11)],
)
INTENSITY = Turn(
    lesson="20",
    name="intensity",
    answer="""
def intensity(n, bytes_each):
    return 2 * n**3 / (3 * n**2 * bytes_each)
""",
    right="It grows with n: a large product uses each number that it reads many times.",
    mistakes={
        "def intensity(n, bytes_each):\n    return n**3 / (3 * n**2 * bytes_each)": (
            "Each of the n³ terms is a product *and* a sum: 2 FLOPs."
        ),
        "def intensity(n, bytes_each):\n    return 2 * n**3 / (n**2 * bytes_each)": (
            "That's one matrix. Two are read and a third is written."
        ),
        "def intensity(n, bytes_each):\n    return 2 * n**3 / (3 * n**2)": (
            "That's FLOPs per number. A number has `bytes_each` bytes."
        ),
    },
    otherwise="Count the FLOPs of A @ B, [n, n] each, and the bytes of A, B and the result.",
    cases=[(1024, 2), (2048, 2), (4096, 4)],  # so large that n - 1 sums are as good as n
)
