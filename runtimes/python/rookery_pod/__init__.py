"""The manager inside a pod of Kubernetes, and the programs that install it (see docs/operate/kubernetes.md).

`closure` makes a Python that runs in any image, when Rookery's image is built. `install` copies it into a
pod, from an init container. `manager` is pid 1 of the pod's main container.
"""
