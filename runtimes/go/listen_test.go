package rookery

// Tests the listener: its address, its socket and its refusals.

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestListensAtTheAddressOfTheEnvironmentAndHidesIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	t.Setenv(variableSocket, path)
	t.Setenv(variableFD, "")
	t.Setenv(variablePortFile, "")
	t.Setenv(variableSecret, "secret")
	listener, secret, err := listenFromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if secret != "secret" || listener.Addr().String() != path {
		t.Fatalf("%s %s", secret, listener.Addr())
	}
	for _, name := range []string{variableSocket, variableSecret} {
		if _, set := os.LookupEnv(name); set {
			t.Fatalf("%s is still set", name)
		}
	}
}

func TestServeFailsWithoutASecret(t *testing.T) {
	t.Setenv(variableSecret, "")
	if _, _, err := listenFromEnvironment(); err == nil || !strings.Contains(err.Error(), variableSecret) {
		t.Fatal(err)
	}
}

func TestReplacesASocketWithoutAListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listen(path, "", ""); err == nil {
		t.Fatal("took the socket of somebody who listens")
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	first.Close()
	second, err := listen(path, "", "")
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
}

func TestDoesNotReplaceAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(path, "", ""); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Fatal(err)
	}
}

func TestWritesTheAddressOfATCPListener(t *testing.T) {
	file := filepath.Join(t.TempDir(), "port")
	listener, err := listen("tcp:127.0.0.1:0", "", file)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	written, err := os.ReadFile(file)
	if err != nil || string(written) != listener.Addr().String()+"\n" {
		t.Fatalf("%q %v", written, err)
	}
}

func TestRefusesADescriptorThatIsNoSocket(t *testing.T) {
	for _, text := range []string{"x", "-1"} {
		if _, err := listen("", text, ""); err == nil || !strings.Contains(err.Error(), variableFD) {
			t.Fatalf("%s: %v", text, err)
		}
	}
}
