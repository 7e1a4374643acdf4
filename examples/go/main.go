// An agent in Go that counts its calls. The runtime is a module without dependencies: runtimes/go.
package main

import (
	"context"
	"encoding/json"
	"sync/atomic"

	rookery "rookery.dev/runtime"
)

func main() {
	var calls atomic.Int64
	rookery.Start(func(ctx context.Context, event json.RawMessage) (any, error) {
		asked := struct{ Name string }{"world"}
		if err := json.Unmarshal(event, &asked); err != nil {
			return nil, err
		}
		return map[string]any{"message": "Hello, " + asked.Name + "!", "calls": calls.Add(1)}, nil
	})
}
