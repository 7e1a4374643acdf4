import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { Bed } from './agents.ts';

const WAIT = { timeout: 60_000, interval: 50 };

const PYTHON = `
import threading
released = threading.Event()

def hold(context, begun):
    with context.keep_awake(600):
        begun.set()
        released.wait()

def keep_wrongly(context, seconds):
    try:
        with context.keep_awake(seconds):
            pass
    except ValueError as error:
        return "takes 1 to 3600 seconds" in str(error)

def handle(event, context):
    op = event["op"]
    if op == "get":
        return dict(context.state)
    if op == "hold":
        begun = threading.Event()
        threading.Thread(target=hold, args=(context, begun), daemon=True).start()
        begun.wait()
        return None
    if op == "hold wrongly":
        return [keep_wrongly(context, seconds) for seconds in (0.5, 3601, True, "300")]
    if op == "release":
        released.set()
        return None
    context.state["calls"] = context.state.get("calls", 0) + 1
    if op == "set":
        context.set_alarm("remind", after=event["after"], payload={"text": event["text"]})
    if op == "cancel":
        context.cancel_alarm("remind")
    if op == "again":
        context.set_alarm("again", after=0)
    if op == "raise":
        context.set_alarm("never", after=0)
        raise ValueError("asked for")
    if op == "wrong":
        context.set_alarm("wrong", cron="nonsense")
    if op == "two":
        context.set_alarm("two", after=1, every=5)
    if op == "list":
        return context.alarms()
    if op == "change and list":
        context.set_alarm("mine", cron="30 4 * * *", payload=[1, "ä"], max_late_seconds=60)
        context.cancel_alarm("remind")
        listed = context.alarms()
        if event.get("fails"):
            raise ValueError("asked for")
        return listed
    if op == "wrong list":
        context.set_alarm("wrong", cron="nonsense")
        try:
            return context.alarms()
        except ValueError as error:
            context.cancel_alarm("wrong")
            return str(error)

def on_alarm(alarm, context):
    text = alarm["payload"] and alarm["payload"]["text"]
    context.state.setdefault("alarms", []).append([alarm["name"], text, context.wake["reason"]])
    if alarm["name"] == "again" and len(context.state["alarms"]) < 3:
        context.set_alarm("again", after=0)

def on_sleep(context):
    context.state["sleeps"] = context.state.get("sleeps", 0) + 1
`;

const NODE = `
let release;
const released = new Promise(resolve => {
  release = resolve;
});
exports.handle = (event, context) => {
  const { op } = event;
  const { state } = context;
  if (op === 'get') return { ...state };
  if (op === 'hold') {
    void context.keepAwake(released, 600);
    return;
  }
  if (op === 'hold wrongly') {
    const wrong = [0.5, 3601, true, '300'].map(seconds => context.keepAwake(Promise.resolve(), seconds));
    return Promise.all(wrong.map(kept => kept.catch(error => error.message.includes('takes 1 to 3600 seconds'))));
  }
  if (op === 'release') {
    release();
    return;
  }
  state.calls = (state.calls ?? 0) + 1;
  if (op === 'set') context.setAlarm('remind', { after: event.after, payload: { text: event.text } });
  if (op === 'cancel') context.cancelAlarm('remind');
  if (op === 'again') context.setAlarm('again', { after: 0 });
  if (op === 'raise') {
    context.setAlarm('never', { after: 0 });
    throw new Error('asked for');
  }
  if (op === 'wrong') context.setAlarm('wrong', { cron: 'nonsense' });
  if (op === 'two') context.setAlarm('two', { after: 1, every: 5 });
  if (op === 'list') return context.alarms();
  if (op === 'change and list') return changeAndList(event, context);
  if (op === 'wrong list') {
    context.setAlarm('wrong', { cron: 'nonsense' });
    return context.alarms().catch(error => {
      context.cancelAlarm('wrong');
      return error.message;
    });
  }
};
async function changeAndList(event, context) {
  context.setAlarm('mine', { cron: '30 4 * * *', payload: [1, 'ä'], maxLateSeconds: 60 });
  context.cancelAlarm('remind');
  const listed = await context.alarms();
  if (event.fails) throw new Error('asked for');
  return listed;
}
exports.on_alarm = (alarm, context) => {
  context.state.alarms ??= [];
  context.state.alarms.push([alarm.name, alarm.payload?.text ?? null, context.wake.reason]);
  if (alarm.name === 'again' && context.state.alarms.length < 3) context.setAlarm('again', { after: 0 });
};
exports.on_sleep = async context => {
  context.state.sleeps = (context.state.sleeps ?? 0) + 1;
};
`;

describe.each([
  ['Python', { 'app.py': PYTHON }, {}],
  ['Node.js', { 'app.js': NODE }, { runtime: 'nodejs' }],
] as const)('alarms of a durable agent in %s', (_, files, spec) => {
  let bed: Bed;
  beforeAll(async () => {
    bed = await Bed.start(files);
  }, 120_000);
  afterAll(async () => {
    await bed?.[Symbol.asyncDispose]();
  }, 120_000);

  const create = (name: string) => {
    const extendedHandler = { alarm: 'app.on_alarm', sleep: 'app.on_sleep' };
    return bed.create(name, 'app.handle', { ...spec, extendedHandler }, { durable: { sleep_after_seconds: 0 } });
  };
  const call = (id: string, event: object) => bed.invoke(id, event);
  const stateOf = async (id: string) => (await call(id, { op: 'get' })).body.data;
  const alarmsOf = async (id: string) => (await bed.ask('GET', `/api/agent/${id}/alarms`)).body as unknown;
  const delivered = (id: string) => vi.waitFor(async () => expect(await alarmsOf(id)).toEqual([]), WAIT);

  test('an alarm that a call has set wakes the sleeping agent', { timeout: 120_000 }, async () => {
    const id = await create('sleeper');
    expect(await call(id, { op: 'set', after: 3, text: 'tea' })).toMatchObject({ status: 200 });
    expect(await bed.ask('POST', `/api/agent/${id}/sleep`)).toMatchObject({
      body: { instance: { status: 'SLEEPING' } },
    });
    await delivered(id);
    expect(await stateOf(id)).toEqual({ calls: 1, sleeps: 1, alarms: [['remind', 'tea', 'alarm']] });
    expect((await bed.ask('GET', `/api/agent/${id}`)).body.instance).toMatchObject({
      extendedHandler: { alarm: 'app.on_alarm', sleep: 'app.on_sleep' },
      durable: { wakes: 1 },
    });
  });

  test('an alarm entry that sets its own alarm again is called again', { timeout: 120_000 }, async () => {
    const id = await create('again');
    await call(id, { op: 'again' });
    await delivered(id);
    expect(await stateOf(id)).toMatchObject({ calls: 1, alarms: Array(3).fill(['again', null, 'created']) });
  });

  test('context.alarms() returns the saved alarms with the changes of the call', { timeout: 120_000 }, async () => {
    const id = await create('lister');
    const list = async (event: object) => (await call(id, event)).body.data;
    expect(await list({ op: 'list' })).toEqual([]);
    await call(id, { op: 'set', after: 3600, text: 'tea' });
    await bed.ask('PUT', `/api/agent/${id}/alarms/nightly`, { every: 3600, payload: 'outside' });
    const nightly = { name: 'nightly', every: 3600, payload: 'outside', attempts: 0, missed: 0, failed: false };
    const remind = { name: 'remind', at: expect.any(String), payload: { text: 'tea' } };
    expect(await list({ op: 'list' })).toMatchObject([nightly, remind]);
    const mine = { name: 'mine', cron: '30 4 * * *', tz: 'UTC', payload: [1, 'ä'], max_late_seconds: 60 };
    expect(await call(id, { op: 'change and list', fails: true })).toMatchObject({ status: 500 });
    expect(await list({ op: 'list' })).toMatchObject([nightly, remind]);
    expect(await list({ op: 'change and list' })).toMatchObject([mine, nightly]);
    await bed.killAndRestart();
    expect(await list({ op: 'list' })).toMatchObject([mine, nightly]);
    expect(await list({ op: 'wrong list' })).toContain('cron or tz is wrong');
    await bed.ask('DELETE', `/api/agent/${id}/alarms/nightly`);
    expect(await list({ op: 'list' })).toMatchObject([mine]);
  });

  test('a call that fails sets no alarm and changes nothing', { timeout: 120_000 }, async () => {
    const id = await create('failing');
    expect(await call(id, { op: 'raise' })).toMatchObject({ status: 500 });
    expect(await call(id, { op: 'two' })).toMatchObject({ status: 500 });
    const wrong = await call(id, { op: 'wrong' });
    expect(wrong.status).toBe(500);
    expect(wrong.body.message).toContain('an alarm cannot be set: cron or tz is wrong');
    expect(await alarmsOf(id)).toEqual([]);
    // The wrong alarm has ended the process, whose next start may take a moment.
    await vi.waitFor(async () => expect(await stateOf(id)).toEqual({}), WAIT);
  });

  test('code that keeps the agent awake is a use of it, also for the next service', { timeout: 120_000 }, async () => {
    const id = await create('held');
    const sleep = () => bed.ask('POST', `/api/agent/${id}/sleep`);
    const held = { status: 409, body: { awake_because: [expect.stringMatching(/^keep_awake \d+ s$/)] } };
    expect(await call(id, { op: 'hold wrongly' })).toMatchObject({ body: { data: [true, true, true, true] } });
    await call(id, { op: 'hold' });
    await vi.waitFor(async () => expect(await sleep()).toMatchObject(held), WAIT);
    await bed.killAndRestart();
    expect(await sleep()).toMatchObject(held);
    await call(id, { op: 'release' });
    await vi.waitFor(async () => expect(await sleep()).toMatchObject({ status: 200 }), WAIT);
  });

  test('an alarm of a killed service is delivered once by the next one', { timeout: 120_000 }, async () => {
    const id = await create('killed');
    await call(id, { op: 'set', after: 1, text: 'late' });
    await bed.killAndRestart();
    await delivered(id);
    expect(await stateOf(id)).toMatchObject({ calls: 1, alarms: [['remind', 'late', expect.any(String)]] });
  });

  test('alarms are set, listed and cancelled from outside', { timeout: 120_000 }, async () => {
    const id = await create('outside');
    const path = `/api/agent/${id}/alarms`;
    await call(id, { op: 'set', after: 3600, text: 'x' });
    expect(await bed.ask('PUT', `${path}/nightly`, { cron: '0 3 * * *', payload: { text: 'hidden' } })).toMatchObject({
      status: 200,
      body: { alarm: { name: 'nightly', cron: '0 3 * * *', tz: 'UTC', failed: false } },
    });
    expect(await alarmsOf(id)).toMatchObject([{ name: 'nightly' }, { name: 'remind', attempts: 0 }]);
    expect(JSON.stringify(await alarmsOf(id))).not.toContain('hidden');
    expect((await bed.ask('GET', `/api/agent/${id}`)).body.instance).toMatchObject({
      durable: { next_alarm_at: expect.any(String) },
    });
    expect(await bed.ask('DELETE', `${path}/nightly`)).toMatchObject({ status: 200 });
    expect(await bed.ask('DELETE', `${path}/nightly`)).toMatchObject({ status: 404 });
    expect(await bed.ask('PUT', `${path}/now`, { every: 1 })).toMatchObject({ status: 400 });
    await call(id, { op: 'cancel' });
    expect(await alarmsOf(id)).toEqual([]);
  });
});

describe('entries of an agent', () => {
  test('an alarm entry needs durable, and one that does not exist is the load_error', {
    timeout: 120_000,
  }, async () => {
    await using bed = await Bed.start({ 'app.py': PYTHON });
    const body = (alarm: string, more: object) =>
      bed.createBody('entry', 'app.handle', { extendedHandler: { alarm } }, more);
    expect(await bed.ask('POST', '/api/agent', body('app.on_alarm', {}))).toMatchObject({
      status: 400,
      body: { message: 'invalid request body: runtime_spec.extendedHandler.alarm needs durable' },
    });
    const created = await bed.ask('POST', '/api/agent', body('app.missing', { durable: true }));
    const id = created.body.instance_id as string;
    expect((await bed.ask('GET', `/api/agent/${id}`)).body.instance).toMatchObject({
      load_error: expect.stringContaining('cannot load the alarm entry app.missing'),
    });
  });
});
