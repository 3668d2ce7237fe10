# An Estimator under a strategy, in the manner of 2018.
import tensorflow as tf
from tensorflow.contrib import distribute  #! contrib-distribute
from tensorflow.examples.tutorials.mnist import input_data  #! examples-tutorials


def model_fn(features, labels, mode):
    logits = tf.layers.dense(features["x"], 10)  #! tf-layers
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)  #! v1-losses
    step = tf.train.get_global_step()  #! global-step
    train_op = tf.train.AdamOptimizer(1e-3).minimize(loss, step)  #! train-optimizers
    rate = {"accuracy": tf.metrics.accuracy(labels, tf.argmax(logits, 1))}  #! v1-metrics
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=rate)  #! estimator


def input_fn():
    mnist = input_data.read_data_sets("data")
    dataset = tf.data.Dataset.from_tensor_slices(({"x": mnist.train.images}, mnist.train.labels))
    dataset = dataset.apply(tf.data.experimental.shuffle_and_repeat(1000))  #! fused-data-operations
    return dataset.batch(32).make_one_shot_iterator().get_next()  #! one-shot-iterator


strategy = distribute.CollectiveAllReduceStrategy(num_gpus_per_worker=0)
config = tf.estimator.RunConfig(train_distribute=strategy)  #! estimator
estimator = tf.estimator.Estimator(model_fn, config=config)  #! estimator
tf.estimator.train_and_evaluate(estimator, tf.estimator.TrainSpec(input_fn, 100),  #! estimator
                                tf.estimator.EvalSpec(input_fn))  #! estimator
