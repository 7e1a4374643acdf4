module example

go 1.23

require rookery.dev/runtime v0.0.0

replace rookery.dev/runtime => ../../runtimes/go
