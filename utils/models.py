"""Small Keras models for 28 x 28 gray images in ten classes, and a U-Net for 64 x 64 scenes.

Every builder returns an unbuilt-optimizer, uncompiled `keras.Model` that takes
images `[batch, 28, 28, 1]` scaled to [0, 1] and returns logits `[batch, 10]`; the U-Net takes
`[batch, 64, 64, 1]` and returns logits for each pixel, `[batch, 64, 64, 11]`.
Call it inside `strategy.scope()`. Initial weights depend on `seed` alone, not on
the strategy or on what was built before.
"""

from collections.abc import Callable, Sequence

import keras

from .checks import check_choice, check_count
from .data.scenes import MASK_CLASSES, SCENE_SIZE
from .errors import InputError

IMAGE_SHAPE = (28, 28, 1)
CLASSES = 10
SCENE_SHAPE = (SCENE_SIZE, SCENE_SIZE, 1)
PATCHES = 49  # of 4 x 4 pixels


def build_mlp(seed: int = 0, dtype: str = "float32", hidden_units: int = 128) -> keras.Model:
    """Return a perceptron with one hidden layer of `hidden_units` (101,770 parameters at 128).

    It maps images [batch, 28, 28, 1] to logits [batch, 10]. `seed` fixes the first weights, and
    `dtype` is as in `build_model`.

        print(build_mlp(hidden_units=128).count_params())  # 101770
    """
    layer = _seeded(seed, dtype)
    return keras.Sequential(
        [
            keras.Input(IMAGE_SHAPE),
            keras.layers.Flatten(dtype=dtype),
            layer(keras.layers.Dense, hidden_units, activation="relu"),
            layer(keras.layers.Dense, CLASSES, dtype=_output_dtype(dtype)),
        ],
        name="mlp",
    )


def build_cnn(seed: int = 0, dtype: str = "float32") -> keras.Model:
    """Return the network of TensorFlow's custom-training tutorial: two convolutions, two dense.

    It has 121,930 parameters, and no layer depends on the other examples of a batch. It maps images
    [batch, 28, 28, 1] to logits [batch, 10]. `seed` fixes the first weights, and `dtype` is as in
    `build_model`.

        print(build_cnn().count_params())  # 121930
    """
    layer = _seeded(seed, dtype)
    return keras.Sequential(
        [
            keras.Input(IMAGE_SHAPE),
            layer(keras.layers.Conv2D, 32, 3, activation="relu"),
            keras.layers.MaxPooling2D(dtype=dtype),
            layer(keras.layers.Conv2D, 64, 3, activation="relu"),
            keras.layers.MaxPooling2D(dtype=dtype),
            keras.layers.Flatten(dtype=dtype),
            layer(keras.layers.Dense, 64, activation="relu"),
            layer(keras.layers.Dense, CLASSES, dtype=_output_dtype(dtype)),
        ],
        name="cnn",
    )


def build_transformer(
    seed: int = 0, dtype: str = "float32", blocks: int = 2, width: int = 32, heads: int = 4
) -> keras.Model:
    """Return a small vision Transformer: 49 patches of 4 x 4 pixels are its tokens.

    A chain of plain Keras layers, 19,562 parameters at two `blocks`. The bias of the first
    projection has a row for each patch: the learned positions. A block is a `keras.Model` that
    takes and returns [batch, 49, width], with `heads` attention heads. `seed` fixes the first
    weights, and `dtype` is as in `build_model`. Raises InputError for less than one block or
    head, and for a `width` that isn't divisible by `heads`. Follows Dosovitskiy and others
    2020, arXiv:2010.11929, with the mean of the tokens in place of a class token.

        print(build_transformer().count_params())  # 19562
    """
    if min(blocks, heads, width) < 1 or width % heads:
        raise InputError(
            "blocks, heads and width must be at least 1, and heads must divide width, got "
            f"{blocks} blocks, {heads} heads and width {width}."
        )
    model = keras.Sequential(
        [
            keras.Input(IMAGE_SHAPE),
            *_make_encoder_layers(blocks, width, heads, dtype),
            keras.layers.LayerNormalization(dtype=dtype),
            keras.layers.GlobalAveragePooling1D(dtype=dtype),
            keras.layers.Dense(CLASSES, dtype=_output_dtype(dtype)),
        ],
        name="transformer",
    )
    _draw_kernels(model, seed)
    return model


def build_encoder_decoder(seed: int = 0, dtype: str = "float32") -> keras.Model:
    """Return a Transformer of two layers, "encoder" and "decoder", each with two blocks.

    The encoder is `build_transformer`'s: images to tokens [batch, 49, 32]. The decoder
    starts from one learned query and looks at these tokens by cross-attention, [batch, 1, 49]
    weights for each head, before it names the class. So the tokens are all that passes from one
    to the other. Follows Vaswani and others 2017, arXiv:1706.03762, with the learned query of
    Carion and others 2020, arXiv:2005.12872.
    """
    blocks, width, heads = 2, 32, 4
    layers = _make_encoder_layers(blocks, width, heads, dtype)
    encoder = keras.Sequential([keras.Input(IMAGE_SHAPE), *layers], name="encoder")
    decoder = _build_decoder(seed, dtype, blocks, width, heads)
    model = keras.Sequential([keras.Input(IMAGE_SHAPE), encoder, decoder], name="encoder_decoder")
    _draw_kernels(model, seed)
    return model


def _make_encoder_layers(blocks: int, width: int, heads: int, dtype: str) -> list[keras.Layer]:
    """Return the layers from images [batch, 28, 28, 1] to tokens [batch, 49, width]."""
    project = keras.layers.EinsumDense(
        "bpi,io->bpo", (PATCHES, width), bias_axes="po", dtype=dtype, name="patches"
    )
    return [
        keras.layers.Reshape((7, 4, 7, 4), dtype=dtype),  # row, y, column, x
        keras.layers.Permute((1, 3, 2, 4), dtype=dtype),
        keras.layers.Reshape((PATCHES, 16), dtype=dtype),
        project,
        *[_build_block(f"block_{i}", width, heads, dtype) for i in range(1, blocks + 1)],
    ]


def _build_decoder(seed: int, dtype: str, blocks: int, width: int, heads: int) -> keras.Model:
    """Return what turns tokens [batch, 49, width] into logits, from one learned query."""
    tokens = keras.Input((PATCHES, width), dtype=_compute_dtype(dtype))
    memory = keras.layers.LayerNormalization(dtype=dtype)(tokens)
    state = LearnedQuery(width, seed=seed, dtype=dtype, name="query")(memory)  # [batch, 1, width]
    for i in range(1, blocks + 1):
        attend = keras.layers.MultiHeadAttention(
            heads, width // heads, dtype=dtype, name=f"cross_attention_{i}"
        )
        normal = keras.layers.LayerNormalization(dtype=dtype)(state)
        state = keras.layers.Add(dtype=dtype)([state, attend(normal, memory)])
        state = _add_dense(state, width, dtype)
    state = keras.layers.LayerNormalization(dtype=dtype)(state)
    state = keras.layers.Flatten(dtype=dtype)(state)
    logits = keras.layers.Dense(CLASSES, dtype=_output_dtype(dtype))(state)
    return keras.Model(tokens, logits, name="decoder")


class LearnedQuery(keras.layers.Layer):
    """A learned vector, [batch, 1, units]: the same for each example of the input."""

    def __init__(self, units: int, seed: int = 0, **options: object) -> None:
        super().__init__(**options)
        self.units, self.seed = units, seed

    def build(self, shape) -> None:
        start = keras.initializers.RandomNormal(stddev=0.02, seed=self.seed)
        self.query = self.add_weight(shape=(1, 1, self.units), initializer=start, name="query")
        super().build(shape)

    def call(self, memory):
        query = keras.ops.cast(self.query, self.compute_dtype)
        return keras.ops.repeat(query, keras.ops.shape(memory)[0], axis=0)

    def compute_output_spec(self, memory):
        return keras.KerasTensor((memory.shape[0], 1, self.units), dtype=self.compute_dtype)


def _build_block(name: str, width: int, heads: int, dtype: str) -> keras.Model:
    """Return attention and a dense layer of twice the width, each added to what it takes."""
    tokens = keras.Input((PATCHES, width), dtype=_compute_dtype(dtype))
    normal = keras.layers.LayerNormalization(dtype=dtype)(tokens)
    attend = keras.layers.MultiHeadAttention(heads, width // heads, dtype=dtype, name="attention")
    after = keras.layers.Add(dtype=dtype)([tokens, attend(normal, normal)])
    return keras.Model(tokens, _add_dense(after, width, dtype), name=name)


def _add_dense(tokens: keras.KerasTensor, width: int, dtype: str) -> keras.KerasTensor:
    """Return `tokens` plus what a hidden layer of twice the width makes of them."""
    normal = keras.layers.LayerNormalization(dtype=dtype)(tokens)
    hidden = keras.layers.Dense(2 * width, activation="gelu", dtype=dtype)(normal)
    hidden = keras.layers.Dense(width, dtype=dtype)(hidden)
    return keras.layers.Add(dtype=dtype)([tokens, hidden])


def _draw_kernels(model: keras.Model, seed: int) -> None:
    """Give every kernel its own values: one seeded initializer gives equal shapes equal values."""
    for position, variable in enumerate(model.trainable_variables, start=1):
        if variable.name == "kernel":
            start = keras.initializers.GlorotUniform(seed=1000 * seed + position)
            variable.assign(start(variable.shape, dtype=variable.dtype))


class PatchTokens(keras.layers.Layer):
    """Images [batch, 28, 28, 1] in [0, 1] to tokens [batch, 49] int64, one for each 4 x 4 patch.

    A token says where the patch is and how bright its four 2 x 2 quarters are, each in
    one of `levels` steps: it counts to 49 * levels**4.
    """

    def __init__(self, levels: int, **options: object) -> None:
        super().__init__(**options)
        self.levels = levels

    def call(self, images):
        quarters = keras.ops.reshape(images, (-1, 7, 2, 2, 7, 2, 2))  # row, y, y2, column, x, x2
        quarters = keras.ops.mean(quarters, axis=(3, 6))  # [batch, 7, 2, 7, 2]
        steps = keras.ops.cast(keras.ops.floor(quarters * self.levels), "int64")
        steps = keras.ops.clip(steps, 0, self.levels - 1)
        steps = keras.ops.transpose(steps, (0, 1, 3, 2, 4))
        steps = keras.ops.reshape(steps, (-1, PATCHES, 4))
        code = keras.ops.sum(steps * [self.levels**k for k in range(4)], axis=-1)
        return code + keras.ops.arange(PATCHES, dtype="int64") * self.levels**4

    def compute_output_spec(self, images):
        return keras.KerasTensor((images.shape[0], PATCHES), dtype="int64")


class SparseEmbedding(keras.layers.Layer):
    """Tokens [batch, n] to the sum of their rows of a table, [batch, units].

    Looks up the rows where the table lives (`tf.nn.embedding_lookup`), whole or cut
    into pieces on several parameter servers, and its gradient is sparse: both move
    n rows for each example. `keras.layers.Embedding` reads the whole table first.
    """

    def __init__(self, rows: int, units: int, **options: object) -> None:
        super().__init__(**options)
        self.rows, self.units = rows, units

    def build(self, shape) -> None:
        start = keras.initializers.Zeros()
        self.table = self.add_weight(shape=(self.rows, self.units), initializer=start, name="table")
        super().build(shape)

    def call(self, tokens):
        import tensorflow as tf

        rows = tf.nn.embedding_lookup(self.table.value, tokens)  # [batch, n, units]
        return keras.ops.cast(keras.ops.sum(rows, axis=1), self.compute_dtype)

    def compute_output_spec(self, tokens):
        return keras.KerasTensor((tokens.shape[0], self.units), dtype=self.compute_dtype)


def build_embedding_model(
    seed: int = 0, dtype: str = "float32", levels: int = 8, units: int = 16
) -> keras.Model:
    """Return a model that is nearly all table, as recommenders are: 49 * levels**4 rows.

    Each image touches 49 of them (of 200,704 at 8 levels, 12.8 MB in float32), so
    gradients are sparse. The table begins at zero: a token never seen in training
    says nothing. Raises InputError for fewer than two levels or one unit.
    """
    check_count("levels", levels, 2)
    check_count("units", units)
    layer = _seeded(seed, dtype)
    return keras.Sequential(
        [
            keras.Input(IMAGE_SHAPE),
            PatchTokens(levels, dtype="float32", name="tokens"),
            SparseEmbedding(PATCHES * levels**4, units, dtype=dtype, name="embedding"),
            layer(keras.layers.Dense, CLASSES, dtype=_output_dtype(dtype)),
        ],
        name="embedding_model",
    )


def build_unet(
    seed: int = 0, dtype: str = "float32", widths: Sequence[int] = (16, 32, 64, 128)
) -> keras.Model:
    """Return a U-Net: a class for every pixel of a scene (485,206 parameters at these widths).

    It maps scenes [batch, 64, 64, 1] to logits [batch, 64, 64, classes]. `widths` are the channels
    at each size, from 32 x 32 down: a first convolution halves the size, which saves three quarters
    of the arithmetic. Every size but the smallest is handed across to the way up. The last layer
    also gets the scene itself, sharpened: noise is below 0 and garments are near 1, which brings
    back the edges that half the size has lost. Before any training it calls a pixel background, as
    most are. No layer depends on the other examples of a batch. `seed` fixes the first weights, and
    `dtype` is as in `build_model`. Raises InputError for fewer than two widths or more than five,
    and for a width below 1. Follows Ronneberger and others 2015, arXiv:1505.04597, first weights
    included, with padded convolutions.

        print(build_unet().count_params())  # 485206
    """
    if not 2 <= len(widths) <= 5 or min(widths) < 1:
        raise InputError(f"widths must be two to five numbers of at least 1, got {tuple(widths)}.")
    layer, before_elu = _seeded(seed, dtype), _seeded(seed, dtype, keras.initializers.HeNormal)

    def convolve(x: keras.KerasTensor, width: int) -> keras.KerasTensor:
        for _ in range(2):
            x = before_elu(keras.layers.Conv2D, width, 3, padding="same", activation="elu")(x)
        return x

    inputs = keras.Input(SCENE_SHAPE)
    scaled = keras.layers.Rescaling(4.0, -0.5, dtype=dtype)(inputs)
    x = layer(keras.layers.Conv2D, widths[0], 2, strides=2)(scaled)
    across = []
    for width in widths[:-1]:
        x = convolve(x, width)
        across.append(x)
        x = keras.layers.MaxPooling2D(dtype=dtype)(x)
    x = convolve(x, widths[-1])
    for width, kept in zip(widths[-2::-1], across[::-1], strict=True):
        x = layer(keras.layers.Conv2DTranspose, width, 2, strides=2)(x)
        x = convolve(keras.layers.Concatenate(dtype=dtype)([kept, x]), width)
    x = layer(keras.layers.Conv2DTranspose, widths[0], 2, strides=2, activation="elu")(x)
    contrast = keras.layers.Rescaling(32.0, -3.0, dtype=dtype)(inputs)  # 0 where noise ends
    sharp = keras.layers.Activation("tanh", dtype=dtype)(contrast)
    x = keras.layers.Concatenate(dtype=dtype)([sharp, x])
    mostly_background = keras.initializers.Constant([4.0] + 10 * [0.0])
    options = {"bias_initializer": mostly_background, "dtype": _output_dtype(dtype)}
    logits = layer(keras.layers.Conv2D, MASK_CLASSES, 1, **options)(x)
    return keras.Model(inputs, logits, name="unet")


MODELS: dict[str, Callable[..., keras.Model]] = {
    "mlp": build_mlp,
    "cnn": build_cnn,
    "transformer": build_transformer,
    "unet": build_unet,
}


def build_model(name: str, seed: int = 0, dtype: str = "float32") -> keras.Model:
    """Return the model `name` of `MODELS`; `seed` fixes its first weights.

    `dtype` is a Keras dtype policy: "float32", "float64", "mixed_bfloat16" or "mixed_float16"
    (arithmetic in 16 bits, float32 variables and logits). Raises InputError for another name.

        print(build_model("mlp", dtype="mixed_bfloat16").layers[1].compute_dtype)  # bfloat16
    """
    return MODELS[check_choice("model", name, MODELS)](seed=seed, dtype=dtype)


def _seeded(
    seed: int,
    dtype: str,
    initializer: type[keras.initializers.Initializer] = keras.initializers.GlorotUniform,
) -> Callable[..., keras.layers.Layer]:
    """Return a function that makes a layer with a kernel initializer seeded by its position."""
    position = 0

    def make(kind: type[keras.layers.Layer], *arguments: object, **options: object):
        nonlocal position
        position += 1
        start = initializer(seed=1000 * seed + position)
        return kind(*arguments, **{"dtype": dtype, "kernel_initializer": start, **options})

    return make


def _compute_dtype(dtype: str) -> str:
    return dtype.removeprefix("mixed_")


def _output_dtype(dtype: str) -> str:
    return "float32" if dtype.startswith("mixed") else dtype
