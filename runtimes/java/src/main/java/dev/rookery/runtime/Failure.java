package dev.rookery.runtime;

/** A failure with an error code of the protocol. */
final class Failure extends Exception {
    static final Failure STOPPING = new Failure(Protocol.CODE_PROTOCOL, "the instance is stopping");

    private final int code;

    Failure(int code, String message) {
        super(message, null, false, false);
        this.code = code;
    }

    static Failure ofHandler(String text) {
        return new Failure(Protocol.CODE_HANDLER, "Fail to run user call handler. err: " + text + ".");
    }

    static Failure tooLarge(int size, int limit) {
        return new Failure(
                Protocol.CODE_TOO_LARGE, "response body size " + size + " exceeds the limit of " + limit);
    }

    static Failure notJson(String what, String why) {
        return new Failure(Protocol.CODE_NOT_JSON, what + " cannot be turned into JSON: " + why);
    }

    int code() {
        return code;
    }

    Protocol.ErrorMessage toMessage() {
        Protocol.ErrorMessage message = new Protocol.ErrorMessage();
        message.code = code;
        message.message = getMessage();
        return message;
    }
}
