"""`distlab hub-config`: a commented configuration for JupyterHub, which then serves the course."""

import argparse
import sys
from pathlib import Path

from distlab.cli.parser import Commands, add_command, declare
from distlab.errors import CourseError

TEMPLATE = '''\
# The course on JupyterHub, for users of this machine. docs/hub.md explains each step.
# Written by `distlab hub-config`. Start it as root, in a folder that only root reads:
#     {course}/.venv/bin/jupyterhub -f jupyterhub_config.py
import pwd
import subprocess
from pathlib import Path

c = get_config()
COURSE = Path({course!r})  # the students' copy, with its environment in .venv

# Who may log in: every user of this machine, with the password of this machine (PAM).
c.Authenticator.allow_all = True
# c.Authenticator.allowed_users = {{"ana", "bela"}}  # only these; then delete allow_all
# c.Authenticator.admin_users = {{"teacher"}}

# The address. Passwords need TLS: name your files here, or put a web server with TLS in front.
c.JupyterHub.bind_url = "http://:8000"
# c.JupyterHub.ssl_cert, c.JupyterHub.ssl_key = "/etc/ssl/hub.crt", "/etc/ssl/hub.key"

# Each user's server is a process of this machine, run as that user in ~/course. It loads the
# course's settings, which bring the home page, the signed lessons and the warm kernels.
c.JupyterHub.spawner_class = "jupyterhub.spawner.LocalProcessSpawner"
c.Spawner.cmd = [str(COURSE / ".venv/bin/jupyterhub-singleuser")]
c.Spawner.notebook_dir = "~/course"
c.Spawner.default_url = "/lab"
c.Spawner.start_timeout = c.Spawner.http_timeout = 120
c.Spawner.environment = {{
    "JUPYTER_CONFIG_PATH": str(COURSE / "distlab/lab_config"),
    "PATH": f"{{COURSE}}/.venv/bin:/usr/local/bin:/usr/bin:/bin",
    # TensorFlow's servers ask nobody for a password. Users of one machine share its network, so
    # that any of them could read another's files through such a port. With "private", kernels and
    # clusters have a network of their own. They can't download anything; terminals still can.
    "DISTLAB_NETWORK": "private",
}}
# End kernels that nobody has used for an hour. What they had in memory is lost; files are not.
# c.Spawner.args = ["--MappingKernelManager.cull_idle_timeout=3600"]


def give_course(spawner):
    """Copy the course to ~/course, as the user, unless it's there. What is there stays."""
    user = pwd.getpwnam(spawner.user.name)
    target = Path(user.pw_dir, "course")
    if target.exists():
        return
    parts = [str(part) for part in COURSE.iterdir() if part.name != ".venv"]
    script = 'rm -rf "$0.new" && mkdir "$0.new" && cp -r "$@" "$0.new" && mv "$0.new" "$0"'
    subprocess.run(
        ["sh", "-c", script, str(target), *parts], check=True, cwd="/",
        user=user.pw_uid, group=user.pw_gid, extra_groups=[],
    )


c.Spawner.pre_spawn_hook = give_course

# nbgrader's Assignment List is off: students' environments don't have nbgrader. docs/hub.md says
# how to switch it on.

# ---- Other spawners. We have not run these. Each replaces the spawner_class above.
#
# SystemdSpawner (pip install jupyterhub-systemdspawner) enforces limits for each user:
# c.JupyterHub.spawner_class = "systemd"
# c.SystemdSpawner.mem_limit = "4G"
# c.SystemdSpawner.cpu_limit = 2.0
# c.SystemdSpawner.isolate_tmp = True
# c.SystemdSpawner.unit_extra_properties = {{"TasksMax": "1024"}}
# Users share the machine's network: keep DISTLAB_NETWORK.
#
# DockerSpawner (pip install dockerspawner), with an image that has the course in {course}:
# c.JupyterHub.spawner_class = "dockerspawner.DockerSpawner"
# c.DockerSpawner.image = "your-course-image"
# c.DockerSpawner.volumes = {{"course-{{username}}": "/home/jovyan/course"}}
# c.DockerSpawner.mem_limit = "4G"
# del c.Spawner.pre_spawn_hook  # the image's start copies the course into an empty volume
# Containers on one Docker network reach each other's ports, and Docker's usual profile forbids the
# namespaces that DISTLAB_NETWORK needs. Give each user a Docker network that only the hub's proxy
# joins too.
#
# KubeSpawner (pip install jupyterhub-kubespawner):
# c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
# c.KubeSpawner.image = "your-course-image"
# c.KubeSpawner.mem_guarantee, c.KubeSpawner.mem_limit = "2G", "4G"
# c.KubeSpawner.storage_pvc_ensure = True
# Pods reach each other's ports unless a NetworkPolicy lets only the hub and its proxy in.
'''
OPTIONS = """
--course FOLDER=/srv/course  where the hub finds the students' copy [/srv/course]
--output FILE  write this file [print the text]
"""


def add_parser(subparsers: Commands) -> None:
    parser = add_command(
        subparsers,
        "hub-config",
        run,
        "write a configuration for JupyterHub",
        "Write a JupyterHub configuration. Each user of this machine gets a copy of the course, "
        "with its home page, pictures and warm kernels. docs/hub.md has the steps.",
    )
    declare(parser, OPTIONS)


def run(arguments: argparse.Namespace) -> int:
    """Write the configuration, or print it. A file that exists is left alone."""
    course = Path(arguments.course).absolute()
    text = TEMPLATE.format(course=str(course))
    if arguments.output is None:
        print(text, end="")
        return 0
    try:
        with open(arguments.output, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise CourseError(f"{arguments.output} exists. Give another name to --output.") from None
    if not (course / "distlab" / "lab_config").is_dir():
        print(
            f"There's no course in {course} yet: docs/hub.md says how it gets there.",
            file=sys.stderr,
        )
    return 0
