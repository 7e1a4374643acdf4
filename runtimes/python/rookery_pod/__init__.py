"""The manager inside a pod of Kubernetes, and what brings it there (see docs/kubernetes.md).

`closure` makes what runs in any image, when ours is built; `install` copies it into a pod, from an init container; `manager` is pid 1
of the pod's main container.
"""
