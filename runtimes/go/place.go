package rookery

// Finds the part of a value that JSON cannot express, for the error message.

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"sort"
	"strings"
)

const (
	maxPlaceSteps = 100
	maxPlaceBytes = 300
)

var plainName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]{0,63}$`)

// placed adds the path of the part that JSON cannot express, such as ", at $.rows[3].when". It adds nothing
// when that part is the value itself.
func placed(err error, value any) error {
	place := placeOfRefused(value)
	if place == "" {
		return err
	}
	return fmt.Errorf("%w, at $%s", err, place)
}

func placeOfRefused(value any) (place string) {
	// Methods of the user's types run here and may panic.
	defer func() { _ = recover() }()
	at := reflect.ValueOf(value)
	seen := map[uintptr]bool{}
	var path string
	for range maxPlaceSteps {
		step, next, found := firstRefused(at)
		if !found {
			return path
		}
		path += step
		at = next
		for at.Kind() == reflect.Interface {
			at = at.Elem()
		}
		if kind := at.Kind(); kind == reflect.Pointer || kind == reflect.Map {
			if seen[at.Pointer()] {
				return "" // the value contains itself
			}
			seen[at.Pointer()] = true
		}
		if len(path) > maxPlaceBytes {
			return path[:maxPlaceBytes]
		}
	}
	return path
}

// firstRefused returns the first part of a value that JSON cannot express.
func firstRefused(value reflect.Value) (step string, part reflect.Value, found bool) {
	for value.IsValid() && (value.Kind() == reflect.Pointer || value.Kind() == reflect.Interface) {
		if hasOwnForm(value) {
			return "", value, false
		}
		value = value.Elem()
	}
	if !value.IsValid() || hasOwnForm(value) {
		return "", value, false
	}
	refused := func(name string, part reflect.Value) bool {
		if !part.CanInterface() {
			return false
		}
		if _, err := json.Marshal(part.Interface()); err == nil {
			return false
		}
		step, found = name, true
		return true
	}
	switch value.Kind() {
	case reflect.Map:
		keys := value.MapKeys()
		sort.Slice(keys, func(i, j int) bool { return fmt.Sprint(keys[i]) < fmt.Sprint(keys[j]) })
		for _, key := range keys {
			if part = value.MapIndex(key); refused(keyText(fmt.Sprint(key)), part) {
				return
			}
		}
	case reflect.Slice, reflect.Array:
		for index := range value.Len() {
			if part = value.Index(index); refused(fmt.Sprintf("[%d]", index), part) {
				return
			}
		}
	case reflect.Struct:
		for index := range value.NumField() {
			name, isShown := fieldName(value.Type().Field(index))
			if part = value.Field(index); isShown && refused(name, part) {
				return
			}
		}
	}
	return "", value, false
}

// hasOwnForm returns true if a method of the value produces its JSON.
func hasOwnForm(value reflect.Value) bool {
	if !value.CanInterface() {
		return true
	}
	switch value.Interface().(type) {
	case json.Marshaler, encoding.TextMarshaler:
		return true
	}
	return false
}

func fieldName(field reflect.StructField) (step string, isShown bool) {
	tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	switch {
	case field.Tag.Get("json") == "-":
		return "", false
	case field.Anonymous && tag == "":
		return "", true
	case tag == "":
		tag = field.Name
	}
	return keyText(tag), true
}

func keyText(name string) string {
	if plainName.MatchString(name) {
		return "." + name
	}
	text, _ := json.Marshal(string([]rune(name)[:min(64, len([]rune(name)))]))
	return "[" + string(text) + "]"
}
