/** Handlers that count their runs in their memory or in a file of the host, so that checks see each run. */
export const CODE = `
import contextlib, os, time, uuid

BOOT = uuid.uuid4().hex
seen = set()

@contextlib.contextmanager
def noted(event):
    note(event, "begin")
    yield
    note(event, "end")

def note(event, what):
    # All processes of the machine share this clock.
    with open("/marks/" + event["file"], "a") as file:
        file.write("%s %s %s %d\\n" % (what, event["id"], BOOT, time.monotonic_ns()))

def count(event, context):
    with noted(event):
        again = event["id"] in seen
        seen.add(event["id"])
        time.sleep(event.get("ms", 0) / 1000)
        return {"boot": BOOT, "n": len(seen), "again": again}

def limited(event, context):
    with noted(event):
        time.sleep(event.get("ms", 0) / 1000)
        return {"boot": BOOT}

def session(event, context):
    return {"boot": BOOT}

def generation(event, context):
    return int(os.environ["GENERATION"])

def mark(event, context):
    with open("/marks/" + event["mark"], "a") as file:
        file.write("run\\n")
    time.sleep(event.get("ms", 0) / 1000)
    return event["mark"]
`;
