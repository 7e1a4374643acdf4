package dev.rookery.runtime;

import java.io.IOException;

/** The other side broke the protocol: its connection is closed. */
final class ProtocolException extends IOException {
    ProtocolException(String message) {
        super(message);
    }
}
