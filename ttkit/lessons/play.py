"""Controls that change a picture, for the cells of lessons."""

from ttkit.visualize.widgets.play import play as play
