"""Sphinx's settings of the book. Sphinx runs this file; nothing else imports it."""

from pathlib import Path

_HOME_STYLE = Path(__file__).parents[1] / "lab_config/labextensions/distlab-home/static/home.css"

project = html_title = "Distributed training with TensorFlow"
language = "en"
extensions = ["myst_nb", "distlab.book.extension"]
highlight_language = "none"
smartquotes_action = "qe"  # not dashes: `--` begins an option

nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "myst"  # CommonMark, the default, has no tables
nb_ipywidgets_js = {}  # or it names addresses on the network
myst_enable_extensions = ["dollarmath", "attrs_inline", "colon_fence"]
myst_heading_anchors = 3
myst_heading_slug_func = "distlab.book.extension.slug"

html_theme = "furo"
html_math_renderer = "mathml"
html_static_path = ["static", str(_HOME_STYLE)]
html_css_files = ["home.css", "book.css"]
html_js_files = ["book.js"]
html_copy_source = False
html_show_sphinx = html_show_copyright = False
html_use_index = html_domain_indices = False
html_search_scorer = str(Path(__file__).with_name("search_order.js"))
html_show_search_summary = False  # it fetches pages, which a page of a folder may not
html_theme_options = {"top_of_page_buttons": []}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
