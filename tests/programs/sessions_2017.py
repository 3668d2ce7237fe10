# A graph, a session and a tf.train.Server, in the manner of 2017.
import numpy as np
import tensorflow as tf
from six.moves import xrange

flags = tf.app.flags  #! app-run
flags.DEFINE_string("job_name", "worker", "ps or worker")
flags.DEFINE_integer("task_index", 0, "index of the task")
FLAGS = flags.FLAGS


def main(_):
    tf.logging.set_verbosity(tf.logging.INFO)  #! logging
    server = tf.train.Server.create_local_server()  #! train-server
    if FLAGS.job_name == "ps":
        server.join()
    with tf.device(tf.train.replica_device_setter(ps_tasks=0)):  #! device-setter
        global_step = tf.train.get_or_create_global_step()  #! global-step
        x = tf.placeholder(tf.float32, [None, 4], name="x")  #! placeholder
        y = tf.placeholder(tf.float32, [None], name="y")  #! placeholder
        with tf.variable_scope("linear"):  #! get-variable
            w = tf.get_variable("w", [4, 1], initializer=tf.zeros_initializer())  #! get-variable
        prediction = tf.squeeze(tf.matmul(x, w), squeeze_dims=[1])  #! argmax-dimension
        loss = tf.reduce_mean(tf.square(prediction - y))
        optimizer = tf.train.GradientDescentOptimizer(0.1)  #! train-optimizers
        optimizer = tf.train.SyncReplicasOptimizer(optimizer, 1, 1)  #! sync-replicas
        train_op = optimizer.minimize(loss, global_step=global_step)
        tf.summary.scalar("loss", loss)
    hooks = [optimizer.make_session_run_hook(True),
             tf.train.StopAtStepHook(last_step=20)]  #! hooks
    inputs = np.random.RandomState(0).normal(size=(32, 4)).astype(np.float32)
    with tf.train.MonitoredTrainingSession(  #! session
            master=server.target, is_chief=True, hooks=hooks, stop_grace_period_secs=1,
            config=tf.ConfigProto(allow_soft_placement=True)) as sess:  #! config-proto
        for step in xrange(1000):
            if sess.should_stop():
                break
            _, value = sess.run([train_op, loss], {x: inputs, y: inputs.sum(axis=1)})
            print("step", step, "loss", value)


if __name__ == "__main__":
    tf.app.run()  #! app-run
