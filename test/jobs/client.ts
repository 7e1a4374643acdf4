import { setTimeout as delay } from 'node:timers/promises';

export interface Answer {
  readonly status: number;
  readonly type: string;
  readonly text: string;
}

const END_TIMEOUT_MS = 60_000;

/** A client for the job routes of a service. */
export class JobClient {
  readonly url: string;

  constructor(url: string) {
    this.url = url;
  }

  async ask(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Answer> {
    const content = body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body);
    const answer = await fetch(`${this.url}${path}`, {
      method,
      headers,
      ...(content === undefined ? {} : { body: content }),
    });
    return { status: answer.status, type: answer.headers.get('content-type') ?? '', text: await answer.text() };
  }

  /** Submits a job and returns its id. */
  async submit(body: object): Promise<string> {
    const { status, text } = await this.ask('POST', '/api/jobs/', body);
    if (status !== 200) throw new Error(`the submit answered ${status}: ${text}`);
    return (JSON.parse(text) as { submission_id: string }).submission_id;
  }

  async get(id: string): Promise<Record<string, unknown>> {
    return JSON.parse((await this.ask('GET', `/api/jobs/${id}`)).text) as Record<string, unknown>;
  }

  async log(id: string): Promise<string> {
    return (JSON.parse((await this.ask('GET', `/api/jobs/${id}/logs`)).text) as { logs: string }).logs;
  }

  /** Returns the job's record as soon as `isWanted` accepts it. */
  async until(
    id: string,
    isWanted: (record: Record<string, unknown>) => boolean = isEnded,
  ): Promise<Record<string, unknown>> {
    const deadlineMs = Date.now() + END_TIMEOUT_MS;
    for (;;) {
      const record = await this.get(id);
      if (isWanted(record)) return record;
      if (Date.now() > deadlineMs) throw new Error(`the job stays as it is: ${JSON.stringify(record)}`);
      await delay(20);
    }
  }

  async run(body: object): Promise<Record<string, unknown>> {
    return await this.until(await this.submit(body));
  }
}

function isEnded({ status }: Record<string, unknown>): boolean {
  return status !== 'PENDING' && status !== 'RUNNING';
}
