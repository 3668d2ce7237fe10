"""Pictures that say what they show: every function takes plain records and returns a `Picture`.

    from distlab import figures

    figures.show(figures.lines({"loss": (epochs, losses)}, x_label="epoch", ...))
    figures.show(plt.gcf(), alt="Loss falls from 2.3 to 0.4 in ten epochs.")  # your own plot

Matplotlib is imported when the first picture is drawn, not here. It is used
through its own objects inside a context, so the reader's matplotlib settings
stay as they are.

- `bars`: horizontal bars with their values written next to them
- `batches`: how a global batch is cut: over workers, then over each worker's replicas
- `canvas`: the drawing surface that all figures share: fonts, colors, pixels
- `diagram`: boxes and arrows, and diagrams of them: where variables live under each kind of
  strategy, and what is copied in a step
- `grids`: grids: small images, annotated tables, and the examples that each device received
- `lanes`: the tasks of a job on one axis of time: when each computed, waited and sent, and what was
  lost
- `lines`: line charts with the names of the lines at their ends
- `palette`: one color for one idea through the whole course, in pictures and in explorables
- `picture`: a picture that says what it shows, and the clean-up that matplotlib's SVG needs
- `timeline`: lanes of spans on one time axis: what each worker, stage or device does when
"""

from distlab.figures.bars import bars as bars
from distlab.figures.bars import grouped_bars as grouped_bars
from distlab.figures.bars import stacked_bars as stacked_bars
from distlab.figures.batches import batch_split as batch_split
from distlab.figures.batches import split_evenly as split_evenly
from distlab.figures.canvas import from_figure as from_figure
from distlab.figures.canvas import show as show
from distlab.figures.diagram import Arrow as Arrow
from distlab.figures.diagram import Box as Box
from distlab.figures.diagram import central_storage_devices as central_storage_devices
from distlab.figures.diagram import diagram as diagram
from distlab.figures.diagram import mirrored_devices as mirrored_devices
from distlab.figures.diagram import parameter_server_devices as parameter_server_devices
from distlab.figures.grids import images as images
from distlab.figures.grids import matrix as matrix
from distlab.figures.grids import shares as shares
from distlab.figures.lanes import LaneRecord as LaneRecord
from distlab.figures.lanes import draw_stage as draw_stage
from distlab.figures.lines import lines as lines
from distlab.figures.picture import Picture as Picture
from distlab.figures.timeline import timeline as timeline
