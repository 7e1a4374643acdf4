package dev.rookery.runtime;

import java.io.IOException;

/** The other side violated the protocol. Its connection is closed. */
final class ProtocolException extends IOException {
    ProtocolException(String message) {
        super(message);
    }
}
