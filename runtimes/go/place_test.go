package rookery

// Tests the paths that an error about an unencodable value names.

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type row struct {
	When   float64   `json:"when"`
	Secret chan int  `json:"-"`
	Day    time.Time `json:"day"`
}

type plain struct{ Plain chan int }

type loop struct{ Next *loop }

func TestNamesThePositionOfInvalidJSON(t *testing.T) {
	self := &loop{}
	self.Next = self
	for name, c := range map[string]struct {
		value any
		text  string
	}{
		"in lists and maps":       {map[string]any{"rows": []any{1, map[string]any{"when": math.NaN()}}}, "NaN, at $.rows[1].when"},
		"in structs, by the tag":  {[]row{{When: 1}, {When: math.Inf(1)}}, "+Inf, at $[1].when"},
		"in structs, by the name": {map[string]*plain{"a b": {make(chan int)}}, `chan int, at $["a b"].Plain`},
		"the value itself":        {math.NaN(), "NaN"},
		"in a json.RawMessage":    {map[string]any{"raw": json.RawMessage("{")}, ", at $.raw"},
		"in a date":               {map[string]any{"d": time.Date(99999, 1, 1, 0, 0, 0, 0, time.UTC)}, ", at $.d"},
		"in itself":               {self, "encountered a cycle"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := encodeValue(c.value)
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("expected %q, got %v", c.text, err)
			}
			if has := strings.Contains(err.Error(), ", at $"); has != strings.Contains(c.text, ", at $") {
				t.Fatalf("the place: %v", err)
			}
		})
	}
}

func TestNamesThePlaceInASequence(t *testing.T) {
	_, failure := encodeSequence(func(yield func(any) bool) {
		_ = yield(1) && yield(map[string]any{"x": math.NaN()})
	}, nil, 1000)
	if failure == nil || !strings.HasSuffix(failure.Message, "NaN, at $.x") {
		t.Fatalf("got %v", failure)
	}
}

func TestReportsAnInvalidCodeDirectory(t *testing.T) {
	directory := t.TempDir()
	file := filepath.Join(directory, "code.zip")
	link := filepath.Join(directory, "link")
	if os.WriteFile(file, nil, 0o600) != nil || os.Symlink("/nowhere/code", link) != nil {
		t.Fatal("no files")
	}
	for path, why := range map[string]string{
		directory:                           "",
		filepath.Join(directory, "nothing"): "does not exist",
		file:                                "is a file and not a directory: unpack it, and mount the directory",
		link:                                "is a link to /nowhere/code, which does not exist inside the sandbox",
	} {
		if got := whyNoDirectory(path); got != why {
			t.Errorf("%s: %q", path, got)
		}
	}
}
