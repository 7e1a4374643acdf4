package rookery

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// This file holds the wire format of the runtime protocol, version 1. Specified in
// docs/reference/runtime-protocol.md.

const protocolVersion = 1

const (
	frameHello     byte = 1
	frameHelloOK   byte = 2
	frameInit      byte = 3
	frameInitOK    byte = 4
	frameCall      byte = 5
	frameResult    byte = 6
	frameChunk     byte = 7
	frameError     byte = 8
	frameCancel    byte = 9
	frameCredit    byte = 10
	framePing      byte = 11
	framePong      byte = 12
	frameStop      byte = 13
	frameStopped   byte = 14
	frameSave      byte = 15
	frameSaved     byte = 16
	frameSpans     byte = 17
	frameKeepAwake byte = 18
	frameAlarms    byte = 19
	frameAlarmList byte = 20
	frameOverhead       = 5 // size of type and call id, which the length includes
	headerBytes         = 4 + frameOverhead
	maxFrameBytes       = 7 * 1024 * 1024
	// Limit for the text of an ERROR, since an error's own text may have any length.
	maxMessageBytes = 64 * 1024
)

const (
	codeProtocol           = 4000
	codeLoad               = 4001
	codeHandler            = 4002
	codeTooLarge           = 4004
	codeNotJSON            = 4007
	codePreStop            = 4009
	codeTimeout            = 4010
	codeInitializer        = 4201
	codeInitializerTimeout = 4211
)

// protocolError is a violation of the protocol by the other side, whose connection is closed.
type protocolError string

func (e protocolError) Error() string { return string(e) }

func protocolErrorf(format string, arguments ...any) error {
	return protocolError(fmt.Sprintf(format, arguments...))
}

// readMessage parses the JSON of a frame into message.
func readMessage(payload []byte, what string, message any) error {
	if err := json.Unmarshal(payload, message); err != nil {
		return protocolErrorf("%s is not as the protocol has it: %v", what, err)
	}
	return nil
}

type helloMessage struct {
	Version int    `json:"version"`
	Secret  string `json:"secret"`
	Client  string `json:"client"`
	Role    string `json:"role"`
	// 1: the client accepts SPANS.
	Spans int `json:"spans,omitempty"`
}

type helloOKMessage struct {
	Version int    `json:"version"`
	Runtime string `json:"runtime"`
	SDK     string `json:"sdk"`
	State   string `json:"state"`
	// 1: the runtime accepts durable in INIT.
	Durable int `json:"durable"`
	// Present for a durable agent after INIT.
	StateVersion     *int64        `json:"stateVersion,omitempty"`
	KeepAwakeSeconds uint32        `json:"keepAwakeSeconds,omitempty"`
	Error            *errorMessage `json:"error,omitempty"`
}

type initMessage struct {
	CodePath       string `json:"codePath"`
	Handler        string `json:"handler"`
	Initializer    string `json:"initializer"`
	PreStop        string `json:"preStop"`
	InitTimeoutMs  int64  `json:"initTimeoutMs"`
	Concurrency    int    `json:"concurrency"`
	MaxResultBytes int    `json:"maxResultBytes"`
	InstanceID     string `json:"instanceId"`
	Tenant         string `json:"tenant"`
	Namespace      string `json:"namespace"`
	Name           string `json:"name"`
	FunctionName   string `json:"functionName"`
	Version        string `json:"version"`
	MemoryMB       int    `json:"memoryMb"`
	CPUMillis      int    `json:"cpuMillis"`
	// nil for an agent that is not durable.
	Durable *durableMessage `json:"durable,omitempty"`
}

// durableMessage is the saved state with which a durable agent starts.
type durableMessage struct {
	// The JSON of the state; nil: none was saved.
	State         *string `json:"state"`
	Version       int64   `json:"version"`
	MaxStateBytes int     `json:"maxStateBytes"`
	Wake          Wake    `json:"wake"`
	// True if the service answers ALARMS.
	ListsAlarms bool           `json:"listsAlarms"`
	Entries     durableEntries `json:"entries"`
}

// durableEntries are the names of the entries that the service calls; "": it does not.
type durableEntries struct {
	Alarm string `json:"alarm,omitempty"`
	Sleep string `json:"sleep,omitempty"`
}

type initOKMessage struct {
	LoadMicros int64 `json:"loadMicros"`
	InitMicros int64 `json:"initMicros"`
}

type callHeader struct {
	TraceID     string            `json:"traceId"`
	Traceparent string            `json:"traceparent"`
	RequestID   string            `json:"requestId"`
	RemainingMs float64           `json:"remainingMs"`
	AtMs        *float64          `json:"atMs,omitempty"`
	SessionID   string            `json:"sessionId"`
	Entry       string            `json:"entry,omitempty"`
	Stream      bool              `json:"stream"`
	Credit      int64             `json:"credit"`
	Headers     map[string]string `json:"headers"`
}

type cancelMessage struct {
	Reason string `json:"reason"`
}

type pongMessage struct {
	Running int `json:"running"`
	Queued  int `json:"queued"`
}

type stopMessage struct {
	GraceMs int64 `json:"graceMs"`
}

type stoppedMessage struct {
	Error *errorMessage `json:"error,omitempty"`
}

// errorMessage is the payload of ERROR.
type errorMessage struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	RunMicros *int64 `json:"runMicros,omitempty"`
}

func putHeader(frame []byte, kind byte, callID uint32) {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	frame[4] = kind
	binary.BigEndian.PutUint32(frame[5:], callID)
}

func encodeFrame(kind byte, callID uint32, payload []byte) []byte {
	frame := make([]byte, headerBytes+len(payload))
	copy(frame[headerBytes:], payload)
	putHeader(frame, kind, callID)
	return frame
}

// encodeJSON returns the frame of a message type above. It panics if the message is not JSON, which no type
// causes.
func encodeJSON(kind byte, callID uint32, message any) []byte {
	payload, err := json.Marshal(message)
	if err != nil {
		panic("a message of the protocol is not JSON: " + err.Error())
	}
	return encodeFrame(kind, callID, payload)
}

func encodeError(callID uint32, failure *errorMessage) []byte {
	if len(failure.Message) > maxMessageBytes {
		cut := maxMessageBytes
		for cut > 0 && !utf8.RuneStart(failure.Message[cut]) {
			cut--
		}
		shortened := *failure
		shortened.Message = failure.Message[:cut] + "..."
		failure = &shortened
	}
	return encodeJSON(frameError, callID, failure)
}
