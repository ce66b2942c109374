"""Where to run a call: pure decisions, told the time, the sizes and what was measured.

No I/O, no clock and no threads, so that a record of measurements replays them exactly and other languages can carry
them over. `docs/how-it-decides.md` has the formulas and their sources.

    estimate   what a stage will take, and how sure that is
    model      the stages of one place, added up
    engine     the choice: hysteresis, exploration, races, hedging
    race       how much may run twice
"""

from .engine import Choice, Decision, Engine, Policy, alone
from .model import LOCAL, Energy, Prediction, Question, Stages, Term

__all__ = ["LOCAL", "Choice", "Decision", "Energy", "Engine", "Policy", "Prediction", "Question", "Stages", "Term", "alone"]
