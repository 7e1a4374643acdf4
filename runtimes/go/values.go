package rookery

// Encodes values of handlers as RESULT frames and as events of streams.

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
)

const resultOffset = headerBytes + 4

// encodeValue returns the frame of a RESULT: space for the header, then the value as JSON.
func encodeValue(value any) (frame []byte, err error) {
	if raw, ok := value.(json.RawMessage); ok && raw != nil {
		// Code often has its JSON already. It is validated, because the control plane passes it on unchanged.
		if !json.Valid(raw) {
			return nil, fmt.Errorf("the json.RawMessage is not JSON")
		}
		return append(make([]byte, resultOffset, resultOffset+len(raw)), raw...), nil
	}
	var buffer bytes.Buffer
	buffer.Write(make([]byte, resultOffset))
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, placed(err, value)
	}
	frame = buffer.Bytes()
	return frame[:len(frame)-1], nil // without the encoder's newline
}

func putResult(frame []byte, callID uint32, micros int64) {
	putHeader(frame, frameResult, callID)
	binary.BigEndian.PutUint32(frame[headerBytes:], uint32(min(micros, 1<<32-1)))
}

func tooLarge(size, limit int) *errorMessage {
	return &errorMessage{Code: codeTooLarge, Message: fmt.Sprintf("response body size %d exceeds the limit of %d", size, limit)}
}

func notJSON(err error) *errorMessage {
	return &errorMessage{Code: codeNotJSON, Message: "the returned value cannot be turned into JSON: " + err.Error()}
}

// encodeSequence runs a sequence of values. With a stream it sends each value: a text as it is, nil not at
// all, other values as JSON. Without a stream it collects the values into an array of at most limit bytes.
func encodeSequence(values iter.Seq[any], stream *Stream, limit int) ([]byte, *errorMessage) {
	if stream != nil {
		return streamSequence(values, stream)
	}
	frame := append(make([]byte, resultOffset), '[')
	var failure *errorMessage
	values(func(value any) bool {
		item, err := json.Marshal(value)
		if err != nil {
			failure = notJSON(placed(err, value))
			return false
		}
		if len(frame) > resultOffset+1 {
			frame = append(frame, ',')
		}
		frame = append(frame, item...)
		if size := len(frame) + 1 - resultOffset; size > limit {
			failure = tooLarge(size, limit)
			return false
		}
		return true
	})
	return append(frame, ']'), failure
}

func streamSequence(values iter.Seq[any], stream *Stream) ([]byte, *errorMessage) {
	var failure *errorMessage
	values(func(value any) bool {
		if err := writeEvent(stream, value); err != nil {
			failure = err
		}
		return failure == nil
	})
	return append(make([]byte, resultOffset), "null"...), failure
}

func writeEvent(stream *Stream, value any) *errorMessage {
	var err error
	switch event := value.(type) {
	case nil:
		return nil
	case string:
		_, err = stream.WriteString(event)
	default:
		text, marshalErr := json.Marshal(event)
		if marshalErr != nil {
			return notJSON(placed(marshalErr, event))
		}
		_, err = stream.Write(text)
	}
	if err != nil {
		return handlerFailure(err.Error())
	}
	return nil
}

func handlerFailure(text string) *errorMessage {
	return &errorMessage{Code: codeHandler, Message: "Fail to run user call handler. err: " + text + "."}
}
