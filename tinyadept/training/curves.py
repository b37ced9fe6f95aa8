"""A picture of what was learned, epoch by epoch."""

from __future__ import annotations

from pathlib import Path


def draw(history: list[dict[str, float]], panels: list[list[str]], path: Path) -> None:
    """Curves side by side.

    Parameters
    ----------
    history : list of dict
        Values by name, an epoch an entry; one may lack some.
    panels : list of list of str
        Which names share a panel, whose title is the last value of the first.
    path : path
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(panels), 3.5), layout="constrained")
    for axes, names in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for name in reversed(names):
            points = [(epoch, entry[name]) for epoch, entry in enumerate(history, 1) if name in entry]
            if points:
                axes.plot(*zip(*points), marker=".", label=name)
                axes.set_title(f"{name} {points[-1][1]:.3f} after {points[-1][0]} epochs")
        axes.set_xlabel("epoch")
        axes.legend()
        axes.grid(alpha=0.3)
        axes.xaxis.get_major_locator().set_params(integer=True)
    figure.savefig(path, dpi=120)
