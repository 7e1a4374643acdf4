import { readFile } from 'node:fs/promises';
import { messageOf } from '../core/error.ts';
import { WrongValue } from '../core/setting.ts';
import type { Values } from './settings.ts';
import { STORAGE_SETTINGS } from './storage-settings.ts';

/**
 * Returns the URL of the database from the setting or its file, and all problems with it. No problem contains
 * the URL, which may hold a password.
 */
export async function readStorageUrl(
  values: Values,
  isWrong: ReadonlySet<string>,
): Promise<{ url: string | null; problems: string[] }> {
  const { 'storage.url': url, 'storage.urlFile': file } = values;
  if (file === null) return { url, problems: [] };
  if (url !== null || isWrong.has('storage.url')) {
    return {
      url: null,
      problems: ['storage.url and storage.urlFile are both set: one is used, so set only one of them.'],
    };
  }
  try {
    return { url: STORAGE_SETTINGS['storage.url'].readText((await readFile(file, 'utf8')).trim()), problems: [] };
  } catch (error) {
    const what = error instanceof WrongValue ? `must hold ${error.message}` : `cannot be read: ${messageOf(error)}`;
    return { url: null, problems: [`storage.urlFile: ${file} ${what}.`] };
  }
}
