module rookery.dev/runtime

go 1.23
