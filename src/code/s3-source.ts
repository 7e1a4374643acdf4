import { createHash } from 'node:crypto';
import { type Readable, Transform } from 'node:stream';
import { failedPrecondition, ServiceError } from '../core/error.ts';
import { streamToFile } from '../lib/file-writes.ts';
import { openS3, S3_REQUEST_TIMEOUT_MS, s3Failure } from '../object-store/s3.ts';

/** Location of a function's code object, from its registered `s3CodePath`. */
export interface S3Object {
  readonly bucketId: string;
  readonly objectId: string;
  /** URL of the server; `''` for the configured one. */
  readonly bucketUrl: string;
  /** Credentials `accessKeyId:secretAccessKey[:sessionToken]`; `''` for the configured credentials. */
  readonly token: string;
  /** Checksum in hex; `''` if none was registered. */
  readonly sha512: string;
}

export interface S3Settings {
  readonly endpoint: string;
  readonly region: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  /**
   * Servers that a function may name in `bucketUrl`, in addition to `endpoint`: origins such as
   * `https://s3.example.org`.
   */
  readonly allowedEndpoints: readonly string[];
}

/**
 * Downloads one object of at most `maxBytes` into `file` and compares its checksum. Fails with
 * `failed_precondition` (missing, not allowed, too large, wrong checksum) or `unavailable` (the server does
 * not answer). The caller removes the file.
 */
export async function fetchObject(
  object: S3Object,
  settings: S3Settings,
  file: string,
  maxBytes: number,
): Promise<void> {
  const endpoint = allowedEndpoint(object.bucketUrl, settings);
  const { GetObjectCommand } = await import('@aws-sdk/client-s3');
  const client = await openS3({ endpoint, region: settings.region, ...credentialsOf(object.token, settings) });
  const where = `${object.bucketId}/${object.objectId}`;
  try {
    const answer = await client.send(new GetObjectCommand({ Bucket: object.bucketId, Key: object.objectId }), {
      abortSignal: AbortSignal.timeout(S3_REQUEST_TIMEOUT_MS),
    });
    const hash = createHash('sha512');
    let bytes = 0;
    const check = new Transform({
      transform(chunk: Buffer, _encoding, done) {
        bytes += chunk.length;
        if (bytes > maxBytes) {
          done(failedPrecondition(`the code object ${where} is larger than ${maxBytes} bytes`));
          return;
        }
        hash.update(chunk);
        done(null, chunk);
      },
    });
    await streamToFile([answer.Body as Readable, check], file, { mode: 0o600 });
    const sha512 = hash.digest('hex');
    if (object.sha512 !== '' && sha512 !== object.sha512.toLowerCase()) {
      throw failedPrecondition(`the code object ${where} has the sha512 ${sha512}, registered is ${object.sha512}`);
    }
  } catch (error) {
    if (error instanceof ServiceError) throw error;
    throw s3Failure(`the code object ${where} could not be fetched`, error);
  } finally {
    client.destroy();
  }
}

/** Returns the origin of the server. A function must not make the service connect to an arbitrary address. */
function allowedEndpoint(bucketUrl: string, settings: S3Settings): string {
  const wanted = bucketUrl === '' ? settings.endpoint : bucketUrl;
  if (wanted === '') throw failedPrecondition('the function names no bucketUrl, and no s3.endpoint is configured');
  if (!URL.canParse(wanted)) throw failedPrecondition(`bucketUrl must be a URL: ${wanted}`);
  const origin = new URL(wanted).origin;
  const allowed = [settings.endpoint, ...settings.allowedEndpoints].filter(url => URL.canParse(url));
  if (!allowed.some(url => new URL(url).origin === origin)) {
    throw failedPrecondition(`bucketUrl ${origin} is not one of s3.endpoint and s3.allowedEndpoints`);
  }
  return origin;
}

function credentialsOf(token: string, settings: S3Settings) {
  const [accessKeyId, secretAccessKey, ...session] = token.split(':');
  if (accessKeyId && secretAccessKey) {
    return { accessKeyId, secretAccessKey, ...(session.length > 0 ? { sessionToken: session.join(':') } : {}) };
  }
  return { accessKeyId: settings.accessKeyId, secretAccessKey: settings.secretAccessKey };
}
