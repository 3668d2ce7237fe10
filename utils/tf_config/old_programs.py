"""What a program says when it was written for other versions, packages or launchers than these.

Patterns as in `symptoms.py`, and the package of each module that is often missing.
"""

from .symptoms import make_symptom

LEGACY = "run the same command with --keras legacy; `distlab modernize PROGRAM` lists the lines"
KERAS_3 = (  # errors of Keras 3 where Keras 2 would have continued
    r"has no attribute 'reset_states'",
    r"filepath provided must end in `[.\w]+`",
    r"Invalid filepath extension for saving",
    r"File format not supported: filepath=",
    r"`keras\.optimizers\.legacy` is not supported in Keras 3",
    r"Argument\(s\) not recognized: \{'(?:lr|decay|\w+)'",
    r"Invalid value for argument `reduction`",
    r"has no attribute '(?:fit_generator|evaluate_generator|predict_generator|predict_classes)'",
    r"'(?:SGD|RMSprop|Ada\w+|\w*Optimizer)' object has no attribute '\w+'",
    r"`save_format` argument is deprecated in Keras 3",
    r"\b(?:TensorBoard|ModelCheckpoint|L[12])\.__init__\(\) got an unexpected keyword argument",
    r"module 'keras[\w.]*' has no attribute '\w+'",
    r"filename must end in `\.weights\.h5`",
    r"No module named '(?:tensorflow\.)?keras\.\w[\w.]*'",
    r"A KerasTensor cannot be used as input to a TensorFlow function",
    r"Unrecognized keyword arguments passed to \w+: ",
    r"argument\(s\) (?:is|are) no longer supported in Keras 3",
    r"got an unexpected keyword argument '(?:save_format|options|period|workers|max_queue_size|"
    r"use_multiprocessing|steps_per_execution|experimental_aggregate_gradients)'",
)
TENSORFLOW_1 = (
    "contrib|Session|InteractiveSession|placeholder|app|flags|logging|gfile|layers|ConfigProto|"
    "global_variables_initializer|get_variable|variable_scope|set_random_seed|random_normal|"
    "truncated_normal|reset_default_graph|get_default_graph|enable_eager_execution|assign|"
    "summary\\.FileWriter|trainable_variables|to_float|log|Print|py_func|python_io|estimator"
)
MODERNIZE = "`distlab modernize PROGRAM` lists each such line and what to write today"
PACKAGES = dict(
    pair.split("=")
    for pair in """
    Bio=biopython Crypto=pycryptodome IPython=ipython Levenshtein=levenshtein
    MySQLdb=mysqlclient OpenGL=pyopengl OpenSSL=pyopenssl PIL=pillow attr=attrs
    bs4=beautifulsoup4 cv2=opencv-python-headless dateutil=python-dateutil dotenv=python-dotenv
    faiss=faiss-cpu fitz=pymupdf git=gitpython google.cloud=google-cloud-storage gym=gymnasium
    jwt=pyjwt keras_cv=keras-cv keras_hub=keras-hub keras_nlp=keras-nlp keras_tuner=keras-tuner
    kerastuner=keras-tuner magic=python-magic mpi4py=mpi4py official=tf-models-official
    osgeo=gdal psycopg2=psycopg2-binary pycocotools=pycocotools pydot=pydot serial=pyserial
    skimage=scikit-image sklearn=scikit-learn slugify=python-slugify tensorboardX=tensorboardx
    tensorflow_addons=tensorflow-addons tensorflow_datasets=tensorflow-datasets
    tensorflow_hub=tensorflow-hub tensorflow_io=tensorflow-io
    tensorflow_model_optimization=tensorflow-model-optimization
    tensorflow_probability=tensorflow-probability tensorflow_text=tensorflow-text
    tf_agents=tf-agents tf_keras=tf-keras tf_slim=tf-slim
    tfds=tensorflow-datasets umap=umap-learn usb=pyusb wx=wxpython yaml=pyyaml zmq=pyzmq
    """.split()
)

OLD_PROGRAMS = (
    make_symptom(
        "tensorflow-1",
        rf"module 'tensorflow' has no attribute '(?P<name>{TENSORFLOW_1})'",
        "this is a TensorFlow 1 program: tf.{name} is gone",
        MODERNIZE,
    ),
    make_symptom(
        "tensorflow-1",
        r"No module named '(?P<name>tensorflow\.(?:contrib|examples|estimator|"
        r"models|layers|logging|app)[\w.]*)'",
        "this is a TensorFlow 1 program: {name} is gone",
        MODERNIZE,
    ),
    make_symptom(
        "tensorflow-1",
        r"tf\.placeholder\(\) is not compatible with eager|The Session graph is empty|"
        r"tf\.\w+ is not supported when eager",
        "this is a TensorFlow 1 program: it builds a graph and runs it in a session",
        f"call tf.compat.v1.disable_v2_behavior() right after the import; {MODERNIZE}",
    ),
    make_symptom(
        "old-tensorflow",
        r"module 'tensorflow[\w.]*' has no attribute '\w+'|"
        r"'\w*Strategy\w*' object has no attribute '\w+'|No module named 'tensorflow\.[\w.]+'",
        "the program was written for another TensorFlow: this one has no such name",
        MODERNIZE,
    ),
    make_symptom(
        "keras-3",
        "|".join(KERAS_3),
        "the program was written for Keras 2, and this is Keras 3",
        LEGACY,
    ),
    make_symptom(
        "shared-file",
        r"unable to lock file|Resource temporarily unavailable[^\n]*\.(?:h5|hdf5)",
        "several workers write the same file at once",
        "let only the chief save there; the other workers save to a temporary folder",
    ),
    make_symptom(
        "other-launcher",
        r"KeyError: '(?P<name>(?:PMI|OMPI|SLURM|MV2|HOROVOD)_\w+|LOCAL_RANK|RANK|"
        r"WORLD_SIZE|MASTER_ADDR)'",
        "the program expects the variable {name}, which another launcher sets",
        "start it with that launcher (mpirun for PMI_ and OMPI_, srun for SLURM_, torchrun for "
        "RANK), or read this worker's number from TF_CONFIG: "
        'json.loads(os.environ["TF_CONFIG"])["task"]["index"]',
    ),
    make_symptom(
        "nccl-gpu",
        r"Enabled NCCL communication but no GPUs detected|"
        r"No OpKernel was registered to support Op 'NcclAllReduce'",
        "NCCL was asked for, and this task has no GPU",
        "use CommunicationImplementation.RING or AUTO, or tf.distribute.ReductionToOneDevice() "
        "with MirroredStrategy; `distlab doctor` says which GPUs TensorFlow sees",
    ),
    make_symptom(
        "missing-module",
        r"ModuleNotFoundError: No module named '(?P<module>[\w.]+)'",
        "the program imports {module}, which isn't installed here",
        "install it: pip install {package}. If {module} is your own file, run the program from "
        "its folder or add that folder to PYTHONPATH",
    ),
)


def find_package(module: str) -> str:
    """Return the package that has `module`, as pip calls it; the module's own name if unknown."""
    top = module.split(".")[0]
    return PACKAGES.get(module) or PACKAGES.get(top, top)
