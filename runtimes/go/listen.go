package rookery

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Names of the variables that contain the address to listen on. User code does not see these variables.
const (
	variableSocket   = "ROOKERY_RUNTIME_SOCKET"
	variableFD       = "ROOKERY_RUNTIME_FD"
	variableSecret   = "ROOKERY_RUNTIME_SECRET"
	variablePortFile = "ROOKERY_RUNTIME_PORT_FILE"
)

// listenFromEnvironment returns the listener that the environment requests, and the secret that connections
// must send.
func listenFromEnvironment() (net.Listener, string, error) {
	socket, fd, secret, portFile := take(variableSocket), take(variableFD), take(variableSecret), take(variablePortFile)
	if secret == "" {
		return nil, "", errors.New(variableSecret + " is not set: it must hold the secret that connections open with. " +
			"This program is an agent; Rookery starts it")
	}
	listener, err := listen(socket, fd, portFile)
	return listener, secret, err
}

func take(name string) string {
	value := os.Getenv(name)
	os.Unsetenv(name)
	return value
}

func listen(socket, fd, portFile string) (net.Listener, error) {
	address, isTCP := strings.CutPrefix(socket, "tcp:")
	switch {
	case fd != "":
		return listenInherited(fd)
	case isTCP:
		return listenTCP(address, portFile)
	case socket != "":
		return listenUnix(socket)
	}
	return nil, errors.New(variableSocket + " or " + variableFD + " must say where to listen: a path, tcp:host:port, " +
		"or the number of a listening socket's descriptor")
}

func listenInherited(text string) (net.Listener, error) {
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 0 {
		return nil, fmt.Errorf("%s must be the number of a descriptor, not %q", variableFD, text)
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close() // the listener has a duplicate
	listener, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d (%s) is not a listening socket: %w", fd, variableFD, err)
	}
	if unix, ok := listener.(*net.UnixListener); ok {
		unix.SetUnlinkOnClose(false) // the parent process owns the file
	}
	return listener, nil
}

func listenTCP(address, portFile string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	if portFile == "" {
		return listener, nil
	}
	// The rename makes the complete file appear at once.
	next := portFile + ".new"
	if err = os.WriteFile(next, []byte(listener.Addr().String()+"\n"), 0o644); err == nil {
		err = os.Rename(next, portFile)
	}
	if err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}

// listenUnix creates the socket file. It replaces an existing socket if no process listens on that.
func listenUnix(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("%s (%s) exists and is not a socket", path, variableSocket)
		}
		conn, err := net.Dial("unix", path)
		if err == nil {
			conn.Close()
			return nil, fmt.Errorf("something listens on %s (%s) already", path, variableSocket)
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, err
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	// The control plane often runs as another user. The directory's mode and the secret protect the socket.
	if err := os.Chmod(path, 0o666); err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}
