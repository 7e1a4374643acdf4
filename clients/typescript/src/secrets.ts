import type { Connection, RequestOptions } from './connection.ts';
import type { Secret } from './generated.ts';

/** Secrets: values that environments refer to as `{secret: 'name'}`. The API never returns a value. */
export class Secrets {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Creates a secret or replaces its value. Only sandboxes that start later get the new value. */
  async set(name: string, value: string, options: RequestOptions = {}): Promise<void> {
    await this.#connection.call('putSecret', { ...options, params: { name }, body: { value } });
  }

  /** Returns all secrets without their values. */
  async list(options: RequestOptions = {}): Promise<Secret[]> {
    const { secrets } = await this.#connection.call('listSecrets', options);
    return secrets;
  }

  async delete(name: string, options: RequestOptions = {}): Promise<void> {
    await this.#connection.call('deleteSecret', { ...options, params: { name } });
  }
}
