import type { Connection, RequestOptions } from './connection.ts';
import type { Secret } from './generated.ts';

/** Values that environments name as `{secret: 'name'}`; nobody can read them. */
export class Secrets {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  async set(name: string, value: string, options: RequestOptions = {}): Promise<void> {
    await this.#connection.call('putSecret', { ...options, params: { name }, body: { value } });
  }

  async list(options: RequestOptions = {}): Promise<Secret[]> {
    const { secrets } = await this.#connection.call('listSecrets', options);
    return secrets;
  }

  async delete(name: string, options: RequestOptions = {}): Promise<void> {
    await this.#connection.call('deleteSecret', { ...options, params: { name } });
  }
}
